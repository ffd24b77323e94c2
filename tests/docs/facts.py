"""What there is to document, asked of the code itself."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from cyclopts import App

import holdfast.testing
from holdfast import HoldfastError
from holdfast.cli.commands import _EXIT_CODES, FAILED, INTERRUPTED, app
from holdfast.config import Loaded, Settings
from holdfast.config.load import kinds, variable_of
from holdfast.config.places import dotted
from holdfast.engines.aws import AwsOptions
from holdfast.engines.postgres import PostgresOptions
from holdfast.server import problems
from holdfast.server.app import create_app
from tests.docs.pages import ROOT

PACKAGES = (
    "holdfast",
    "holdfast.config",
    "holdfast.engines",
    "holdfast.engines.aws",
    "holdfast.engines.postgres",
    "holdfast.engines.sqlite",
    "holdfast.testing",
)


class Setting(NamedTuple):
    variable: str
    default: str
    """As `holdfast check` shows it."""
    limits: frozenset[str]
    """Words and numbers that its description cannot do without."""


class Failure(NamedTuple):
    slug: str
    status: int
    exit_code: int


class Route(NamedTuple):
    needs_credential: bool
    errors: frozenset[int]


def commands() -> dict[str, set[str]]:
    """Every command, with its options and the names of its arguments."""
    return dict(_walk(app, "holdfast"))


def _walk(group: App, name: str) -> Iterator[tuple[str, set[str]]]:
    if group.default_command is not None and name != "holdfast":
        arguments = group.assemble_argument_collection(parse_docstring=True)
        yield name, {word for argument in arguments if argument.show for word in argument.names}
    for word in group:
        if not word.startswith("-"):
            yield from _walk(group[word], f"{name} {word}")


def settings() -> dict[str, Setting]:
    """Every setting."""
    shown = {place: value for place, value, _ in Loaded(Settings(), None, {}).effective()}
    return {
        dotted(place): Setting(variable_of(place), msgspec.json.encode(shown[place]).decode(), _limits(kind))
        for place, kind in kinds().items()
    }


def _limits(kind: Any) -> frozenset[str]:
    if get_origin(kind) is Literal:
        return frozenset(get_args(kind))
    if kind is bool:
        return frozenset({"true", "false"})
    if get_origin(kind) is not Annotated:
        return frozenset()
    notes = [note for note in get_args(kind)[1:] if isinstance(note, msgspec.Meta)]
    bounds = [getattr(note, name) for note in notes for name in ("gt", "ge", "lt", "le")]
    return frozenset(f"{bound:g}" if bound < 1e5 else f"{bound:.0f}" for bound in bounds if bound is not None)


def public_names() -> dict[str, set[str]]:
    """The public names of every public module."""
    found = {name: set(importlib.import_module(name).__all__) for name in PACKAGES}
    for module in pkgutil.iter_modules(holdfast.testing.__path__, "holdfast.testing."):
        names = _defined(module.name)
        if not any(name in found["holdfast.testing"] for name in names):  # else it is re-exported, and known by that
            found[module.name] = names
    return found


def _defined(name: str) -> set[str]:
    """What a module offers: its `__all__`, or without one its own classes, functions and constants."""
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        return set(module.__all__)
    source = inspect.getsource(module)
    assigned = re.findall(r"^([A-Za-z]\w*)(?:: [^=\n]+)? = ", source, re.MULTILINE)
    defined = re.findall(r"^(?:class|def|async def) ([A-Za-z]\w*)", source, re.MULTILINE)
    return {word for word in (*assigned, *defined) if not isinstance(getattr(module, word), TypeVar)}


def errors() -> dict[str, Failure]:
    """Every error class, with how it is told."""
    return {kind.__name__: _failure(kind) for kind in _family(HoldfastError)}


def _family(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    if kind.__module__.partition(".")[0] == "holdfast":  # tests make some of their own
        yield kind
        for child in kind.__subclasses__():
            yield from _family(child)


def _failure(kind: type[HoldfastError]) -> Failure:
    code = next((code for known, code in _EXIT_CODES.items() if issubclass(kind, known)), FAILED)
    return Failure(kind.slug, int(problems._status_of(kind)), code)


def exit_codes() -> set[int]:
    return {0, FAILED, INTERRUPTED, *_EXIT_CODES.values()}


def routes() -> dict[str, Route]:
    """Every route, `GET /path`, as the server's own description has it; and the description itself."""
    nothing: Any = None  # what the routes work on is not needed to describe them
    paths: Mapping[str, Any] = create_app(nothing, nothing, nothing).openapi_schema.to_schema()["paths"]
    found = {
        f"{method.upper()} {path}": Route(
            "security" in operation, frozenset(int(status) for status in operation["responses"] if int(status) >= 400)
        )
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    return {**found, "GET /openapi.json": Route(needs_credential=False, errors=frozenset())}


def options() -> dict[str, dict[str, str]]:
    """The fields of the engines' options, with their defaults as Python writes them."""
    return {kind.__name__: {field.name: _default(field) for field in dataclasses.fields(kind)} for kind in OPTIONS}


OPTIONS = (AwsOptions, PostgresOptions)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    return "" if field.default_factory is dataclasses.MISSING else repr(field.default_factory())


def layers() -> list[list[str]]:
    """The layers of the code, the highest first, as import-linter enforces them; in brackets what is still to come."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = {contract["name"]: contract for contract in tools["importlinter"]["contracts"]}
    return [layer.split(" | ") for layer in contracts["layers"]["layers"]]


def targets() -> set[str]:
    """Every target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(" ".join(re.findall(r"^\.PHONY:(.*)$", makefile, re.MULTILINE)).split())


def navigation() -> set[str]:
    """Every page that the site's menu leads to."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    return set(_leaves(project["nav"]))


def _leaves(tree: Any) -> Iterator[str]:
    match tree:
        case str():
            yield tree
        case list():
            for entry in tree:
                yield from _leaves(entry)
        case dict():
            for entry in tree.values():
                yield from _leaves(entry)
