"""Pictures: well-formed whatever names hold, with a cell for everything that a tenant has, and words beside colours."""

from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.shards import Fleet, Slot
from holdfast.shards.report import Overlaps, build_table, count_overlaps, draw_histogram, draw_matrix
from holdfast.shards.report.picture import COLUMNS, ROWS
from tests.unit.shards.report.samples import Shards, fleet_of, shards

PRINTABLE = st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" ")
"""What names of workers and zones may be made of."""

SVG = "{http://www.w3.org/2000/svg}"


class Picture:
    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)

    def of(self, kind: str, panel: str | None = None) -> list[ElementTree.Element]:
        root = (
            self.root if panel is None else next(one for one in self.root.iter(f"{SVG}g") if one.get("class") == panel)
        )
        return [one for one in root.iter() if kind in (one.get("class") or "").split()]

    def words(self, kind: str, panel: str | None = None) -> list[str | None]:
        return [one.text for one in self.of(kind, panel)]

    def said(self, tag: str) -> str:
        return self.root.findtext(f"{SVG}{tag}") or ""


def test_the_picture_of_the_article() -> None:
    fleet = Fleet.from_workers(str(number) for number in range(1, 9))
    picture = Picture(draw_matrix(fleet, [[0, 7], [0, 3], [3, 5]], ["rose", "rainbow", "sunflower"], tenants=[1]))
    assert picture.words("name") == ["rainbow", "rose", "sunflower"], "the attacker first"
    assert len(picture.of("cell", "before")) == len(picture.of("cell", "after")) == 6
    assert len(picture.of("has", "before")) == 6
    assert len(picture.of("has", "after")) == 2
    assert len(picture.of("out", "after")) == 4
    assert picture.words("word", "before") == ["served", "served", "served"]
    assert picture.words("word", "after") == ["✕ down, attacker", "served", "served"]
    assert len(picture.of("worker", "after")) == 8
    assert "Tenants down: rainbow." in picture.said("desc")
    assert "⊠ has it" in (picture.words("faint")[0] or "")
    assert picture.said("title")
    assert picture.root.get("role") == "img"


def test_without_an_attack_all_are_served() -> None:
    picture = Picture(draw_matrix(fleet_of(6), [[0, 1], [2, 3]]))
    assert picture.words("word") == ["served"] * 4
    assert picture.words("name") == ["tenant 0", "tenant 1"]
    assert "none" in picture.said("desc")


def test_a_zone_goes_and_with_it_who_is_nowhere_else() -> None:
    picture = Picture(draw_matrix(Fleet.from_groups({"a": "12", "b": "34"}), [[0, 2], [0, 1], [2, 3]], zones=["a"]))
    assert picture.words("name") == ["tenant 1", "tenant 0", "tenant 2"], (
        "whoever has none left, then who has lost some"
    )
    assert picture.words("word", "after") == ["✕ down", "served", "served"]
    assert picture.words("faint", "after") == ["a", "b"]


def test_between_zones_there_is_a_gap() -> None:
    picture = Picture(draw_matrix(Fleet.from_groups({"a": "12", "b": "34"}), [[0, 1, 2, 3]]))
    positions = [float(cell.get("x") or 0) for cell in picture.of("has", "before")]
    steps = [right - left for left, right in pairwise(positions)]
    assert steps[0] == steps[2] < steps[1]


def test_names_of_zones_never_stand_on_each_other() -> None:
    zones = {f"a zone of a long name {number}": [str(number)] for number in range(9)}
    picture = Picture(draw_matrix(Fleet.from_groups(zones), [[*range(9)]]))
    positions = [float(name.get("x") or 0) for name in picture.of("faint", "before")]
    assert 1 < len(positions) < 9
    assert all(right - left > 100 for left, right in pairwise(positions))


def test_a_drained_worker_is_crossed_out_before_and_after() -> None:
    picture = Picture(draw_matrix(Fleet.from_workers("ab").drain("a"), [[0, 1], [0, -1]]))
    assert picture.words("word", "before") == ["✕ down", "served"]
    titles = [cell.findtext(f"{SVG}title") for cell in picture.of("out", "before")]
    assert titles == ["tenant 1: a, drained", "tenant 0: a, drained"]


def test_of_many_tenants_those_are_shown_that_are_hit_and_of_many_workers_those_they_have() -> None:
    rows = [(number % 500, 500 + number % 499, 999) for number in range(2000)]
    rows[1700] = (3, 4, 5)
    picture = Picture(draw_matrix(fleet_of(1000), build_table(rows), tenants=[1700]))
    names = picture.words("name")
    assert len(names) == ROWS
    assert names[0] == "tenant 1700"
    assert {"tenant 3", "tenant 504", "tenant 1005"} <= {*names}
    assert len(picture.of("cell", "after")) == 3 * ROWS
    assert not picture.of("worker"), "too narrow for names"
    assert "¦ has it" in (picture.words("faint")[0] or "")
    assert f"{ROWS} of 2000 tenants" in picture.said("desc")


def test_all_workers_are_shown_while_they_are_few() -> None:
    few, many = fleet_of(COLUMNS), fleet_of(COLUMNS + 1)
    assert f"{COLUMNS} of {COLUMNS} workers" in draw_matrix(few, [[0, 1]])
    assert f"2 of {COLUMNS + 1} workers" in draw_matrix(many, [[0, 1]])


def test_a_worker_that_relieves_another_is_beside_those_of_its_zone() -> None:
    fleet = Fleet.from_groups({"a": "12", "b": "34"}).share_slot("1", "1b")
    picture = Picture(draw_matrix(fleet, [[0, 2], [4, 3]]))
    assert picture.words("worker", "before") == ["1", "2", "1b", "3", "4"]
    assert len(picture.of("cell", "before")) == 4


def test_nobody_makes_an_empty_picture() -> None:
    picture = Picture(draw_matrix(Fleet.from_workers([]), build_table([])))
    assert not picture.of("cell")


def test_a_name_for_each_or_none() -> None:
    with pytest.raises(InvalidValue, match="1 name for 2 tenants"):
        draw_matrix(fleet_of(3), [[0], [1]], ["a"])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.text(st.characters()) | st.text(st.characters(categories=["Cc", "Cs", "Cn"])) | st.binary(),
        min_size=3,
        max_size=3,
    ),
    st.sets(st.text(PRINTABLE, min_size=1), min_size=4, max_size=4),
    st.text(PRINTABLE, min_size=1),
)
def test_any_name_makes_well_formed_text(names: Sequence[str | bytes], workers: set[str], zone: str) -> None:
    fleet = Fleet(slots=tuple(Slot(worker=name, group=(zone,)) for name in sorted(workers)))
    text = draw_matrix(fleet, [[0, 1], [1, 2], [2, 3]], names, tenants=[1])
    picture = Picture(text)
    assert text.encode("utf-8")
    assert len(picture.of("cell", "after")) == 6


def test_names_are_text_and_never_markup() -> None:
    name = '</text><script>"&'
    picture = Picture(draw_matrix(Fleet.from_workers(["<a&b>", "b"]), [[0, 1]], [name]))
    assert picture.words("name") == [name]
    assert "<a&b>" in picture.words("worker")
    assert Picture(draw_matrix(Fleet.from_workers("a"), [[0]], ["\x00\ud800\ufffe\x85"])).words("name") == [
        "\ufffd" * 4
    ]
    assert Picture(draw_matrix(Fleet.from_workers("a"), [[0]], [b"\xff"])).words("name") == ["\ufffd"]
    [long] = Picture(draw_matrix(Fleet.from_workers("a"), [[0]], ["x" * 100])).words("name")
    assert long == "x" * 23 + "…"


@settings(max_examples=100, deadline=None)
@given(shards(), st.data())
def test_there_is_a_cell_for_everything_that_a_tenant_has(sample: tuple[int, Shards], data: st.DataObject) -> None:
    workers, rows = sample
    attackers = data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=2)) if rows else set[int]()
    picture = Picture(draw_matrix(fleet_of(workers), build_table(rows), tenants=attackers))
    out = {index for row in attackers for index in rows[row]}
    assert len(picture.of("has", "before")) == sum(len(row) for row in rows)
    assert len(picture.of("has", "after")) == sum(len({*row} - out) for row in rows)
    assert len(picture.of("out", "after")) == sum(len({*row} & out) for row in rows)
    assert picture.words("word", "after").count("served") == sum(not {*row} <= out for row in rows)


def test_a_histogram_has_a_bar_for_what_there_is_and_a_number_for_all() -> None:
    found = Overlaps((1_000_000, 1000, 1, 0), (0, 0, 5, 0), 2)
    text = draw_histogram(found)
    picture = Picture(text)
    wide = [float(bar.get("width") or 0) for bar in picture.of("bar")]
    assert wide == [pytest.approx(420.0, abs=0.1), pytest.approx(420 * 4 / 7, abs=0.1), pytest.approx(420 / 7, abs=0.1)]
    texts = [one.text for one in picture.root.iter(f"{SVG}text")]
    assert {"1,000,000", "1,000", "1", "0", "0 workers", "1 worker", "2 workers", "3 workers"} <= {*texts}
    assert "1 worker: 1,000 pairs" in picture.said("desc")


def test_a_histogram_of_nobody_is_well_formed() -> None:
    assert not Picture(draw_histogram(count_overlaps(build_table([])))).of("bar")


def test_both_have_colours_for_light_and_dark_and_hold_for_themselves_alone() -> None:
    for text in (draw_matrix(fleet_of(2), [[0, 1]]), draw_histogram(count_overlaps([[0, 1]]))):
        [style] = list(ElementTree.fromstring(text).iter(f"{SVG}style"))
        assert "prefers-color-scheme: dark" in (style.text or "")
        for rule in (style.text or "").replace("@media (prefers-color-scheme: dark) {", "").split("}"):
            assert all(one.strip().startswith(".hf-shards") for one in rule.split("{")[0].split(",") if one.strip())
