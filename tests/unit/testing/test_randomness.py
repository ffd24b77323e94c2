import os
import subprocess
import sys
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Tenant
from holdfast.testing import seeded

part = st.text() | st.integers() | st.floats(allow_nan=False) | st.none()
parts = st.lists(part, max_size=4).map(tuple)


@given(parts)
def test_the_same_parts_give_the_same_numbers(given_parts: tuple[str | int | float | None, ...]) -> None:
    one, two = seeded(*given_parts), seeded(*given_parts)
    assert [one.random() for _ in range(5)] == [two.random() for _ in range(5)]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a", 1), ("a1",)),
        (("a", 1), ("a", "1")),
        (("a", 1), (1, "a")),
        (("ab", "c"), ("a", "bc")),
        ((1,), (1.0,)),
        ((), ("",)),
        ((None,), ("null",)),
        (('a", "b',), ("a", "b")),
    ],
)
def test_parts_that_differ_give_other_numbers(
    one: tuple[str | int | float | None, ...], two: tuple[str | int | float | None, ...]
) -> None:
    assert seeded(*one).random() != seeded(*two).random()


def test_text_counts_whatever_its_class() -> None:
    class Word(StrEnum):
        FIRST = "tenant-1"

    assert seeded(Word.FIRST).random() == seeded("tenant-1").random() == seeded(Tenant("tenant-1")).random()


@pytest.mark.parametrize(
    ("given_parts", "first"), [(("holdfast", 1), 0.6083550074127146), (("é", 0.5, None), 0.5995886746566746)]
)
def test_the_numbers_are_the_same_in_every_version(
    given_parts: tuple[str | int | float | None, ...], first: float
) -> None:
    assert seeded(*given_parts).random() == first


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_numbers_are_the_same_in_every_process(hash_seed: str) -> None:
    script = "from holdfast.testing import seeded; print(seeded('tenant-1', 7).random())"
    printed = subprocess.check_output(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": hash_seed}, text=True
    )
    assert float(printed) == seeded("tenant-1", 7).random()


def test_drawing_from_one_generator_does_not_move_another() -> None:
    one, two = seeded("a"), seeded("a")
    one.random()
    assert two.random() == seeded("a").random()
