"""Implementations of a seam, found by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._errors import InvalidValue, SettingsError
from holdfast._plugins import Plugins

REGISTRY = """
from holdfast._plugins import Plugins
shapes: Plugins[str] = Plugins("shape", package="toy_shapes.built_in", group="toy.shapes")
"""
SQUARE = """
from toy_shapes.registry import shapes
shapes.register("square")("a square")
"""
ROUND = """
from toy_shapes.registry import shapes
shapes.register("circle")("a circle")
shapes.register("ellipse")("an ellipse")
"""


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugins[str]]:
    """A registry with two built-in modules, and a distribution beside it that has three more names."""
    built_in = tmp_path / "toy_shapes" / "built_in"
    built_in.mkdir(parents=True)
    (tmp_path / "toy_shapes" / "__init__.py").write_text("")
    (tmp_path / "toy_shapes" / "registry.py").write_text(REGISTRY)
    (built_in / "__init__.py").write_text("")
    (built_in / "square.py").write_text(SQUARE)
    (built_in / "round.py").write_text(ROUND)
    (tmp_path / "toy_more.py").write_text("TRIANGLE = 'a triangle'\n")
    metadata = tmp_path / "toy_more-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-more\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[toy.shapes]\ntriangle = toy_more:TRIANGLE\nbroken = toy_more:NONE\nsquare = toy_more:TRIANGLE\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from toy_shapes.registry import shapes  # type: ignore[import-not-found]

    yield shapes
    for name in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[name]


def test_a_module_named_like_its_plugin_is_the_only_one_imported(shapes: Plugins[str]) -> None:
    assert shapes.get("square") == "a square"
    assert "toy_shapes.built_in.round" not in sys.modules


def test_a_module_may_register_several_names(shapes: Plugins[str]) -> None:
    assert shapes.get("ellipse") == "an ellipse"
    assert shapes.get("circle") == "a circle"


def test_another_distribution_adds_a_name_but_cannot_replace_a_built_in_one(shapes: Plugins[str]) -> None:
    assert shapes.get("triangle") == "a triangle"
    assert shapes.get("square") == "a square"
    assert shapes.names() == ("broken", "circle", "ellipse", "square", "triangle")


def test_an_unknown_name_is_answered_with_all_names(shapes: Plugins[str]) -> None:
    with pytest.raises(
        SettingsError,
        match="no shape is called 'cube': expected one of broken, circle, ellipse, square, triangle",
    ):
        shapes.get("cube")


def test_a_plugin_that_cannot_be_loaded_is_named_with_its_distribution(shapes: Plugins[str]) -> None:
    with pytest.raises(SettingsError, match="the shape 'broken' of toy-more cannot be loaded from toy_more:NONE"):
        shapes.get("broken")


def test_one_name_cannot_be_registered_twice(shapes: Plugins[str]) -> None:
    shapes.register("cube")("a cube")
    with pytest.raises(InvalidValue, match="two shapes register as 'cube'"):
        shapes.register("cube")("another cube")
