import pickle
import re

import pytest

import holdfast
from holdfast import _errors
from holdfast._errors import (
    Backpressure,
    DatabaseLocked,
    EngineError,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    MissingExtra,
    OutcomeUnknown,
)
from tests.table import rows

ERRORS = [value for value in vars(_errors).values() if isinstance(value, type) and issubclass(value, HoldfastError)]
by_class = rows("error", ERRORS)

Drawing = dict[str, set[str]]


def drawn_tree(text: str) -> Drawing:
    """Each class of a drawing with its bases: the class that its branch hangs from, and those named by `also`."""
    tree: Drawing = {}
    path: list[str] = []
    for line in text.splitlines():
        if not (found := re.fullmatch(r" {4}(?P<branch>[ │├└─]*)(?P<name>[A-Z]\w+)(?P<words>  .*)?", line)):
            continue
        depth, rest = divmod(len(found["branch"]), 4)
        assert rest == 0, f"{found['name']} is drawn between two levels"
        del path[depth:]
        assert len(path) == depth, f"{found['name']} hangs from nothing"
        tree[found["name"]] = {*path[-1:], *re.findall(r"\(also (\w+)\)", found["words"] or "")}
        path.append(found["name"])
    return tree


def test_a_drawing_is_read_as_classes_with_their_bases() -> None:
    drawing = """Words.

    Root
    ├── One         words    (also ValueError)
    │   └── Deep    words
    └── Two

Words again."""
    assert drawn_tree(drawing) == {"Root": set(), "One": {"Root", "ValueError"}, "Deep": {"One"}, "Two": {"Root"}}


def test_the_tree_drawn_in_the_docstring_is_the_tree_of_classes() -> None:
    real = {error.__name__: {base.__name__ for base in error.__bases__} - {"Exception"} for error in ERRORS}
    assert drawn_tree(_errors.__doc__ or "") == real


def test_every_class_has_a_slug_of_its_own() -> None:
    slugs = [vars(error).get("slug") for error in ERRORS]
    assert None not in slugs
    assert len(set(slugs)) == len(slugs)


@by_class
def test_a_slug_is_lower_case_words_joined_by_hyphens(error: type[HoldfastError]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.slug)


@by_class
def test_every_error_is_a_public_name_of_the_package(error: type[HoldfastError]) -> None:
    assert error.__name__ in holdfast.__all__


@by_class
def test_every_error_says_what_it_is_for(error: type[HoldfastError]) -> None:
    assert error.__doc__


@by_class
def test_every_error_crosses_a_process_boundary_with_its_message(error: type[HoldfastError]) -> None:
    more: dict[type[HoldfastError], object] = {MissingExtra: "server", Backpressure: 1.5}
    raised = error("what happened", *([more[error]] if error in more else []))
    copy = pickle.loads(pickle.dumps(raised))
    assert type(copy) is error
    assert str(copy) == str(raised)
    assert copy.args == raised.args


def test_a_missing_extra_says_what_needs_it_and_what_to_install() -> None:
    error = MissingExtra("the PostgreSQL engine", "postgres")
    assert str(error) == (
        "the PostgreSQL engine needs the extra 'postgres': pip install 'holdfast-resilience[postgres]'"
    )
    assert isinstance(error, ImportError)


def test_an_invalid_value_is_caught_by_those_who_know_only_the_standard_library() -> None:
    with pytest.raises(ValueError, match="too long"):
        raise InvalidValue("too long")


def test_whoever_retries_what_is_unavailable_also_retries_a_locked_database() -> None:
    assert issubclass(DatabaseLocked, EngineUnavailable)


def test_whoever_retries_what_is_unavailable_never_repeats_an_unknown_outcome() -> None:
    assert issubclass(OutcomeUnknown, EngineError)
    assert not issubclass(OutcomeUnknown, EngineUnavailable)
