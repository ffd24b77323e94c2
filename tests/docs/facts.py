"""What there is to document, asked of the code itself."""

import dataclasses
import importlib
import inspect
import logging
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from cyclopts import App
from litestar.routes import HTTPRoute, WebSocketRoute

import holdfast.testing
from holdfast import HoldfastError
from holdfast.alerts import CHANNELS
from holdfast.cli import EXIT_FAILED, EXIT_INTERRUPTED
from holdfast.cli.commands import EXIT_CODES, app
from holdfast.config import Settings
from holdfast.config.load import format_variable_name, list_setting_types
from holdfast.config.paths import ANY_INDEX, SettingPath, format_path
from holdfast.detect import DETECTORS
from holdfast.detect.detector import DEFAULT_DETECTOR
from holdfast.detect.detectors.calibrated import CalibratedOptions
from holdfast.detect.detectors.outlier import OutlierOptions
from holdfast.detect.detectors.threshold import ThresholdOptions
from holdfast.engines.aws import AwsOptions, ZoneOptions
from holdfast.engines.postgres import PostgresOptions
from holdfast.evacuate.action import ACTIONS
from holdfast.server import problems
from holdfast.server.app import create_app
from holdfast.server.state import Services
from holdfast.status.export import (
    AddressOptions,
    BucketOptions,
    CheckTiming,
    EndpointCheck,
    ExistingHealthCheck,
    GatewayOptions,
    ObjectCheck,
    RecordOptions,
    RoutingControlCheck,
)
from tests.docs.pages import ROOT

PACKAGES = (
    "holdfast",
    "holdfast.agent",
    "holdfast.alarms",
    "holdfast.alerts",
    "holdfast.calls",
    "holdfast.calls.adapters.botocore",
    "holdfast.calls.adapters.httpx",
    "holdfast.calls.adapters.requests",
    "holdfast.calls.resolvers",
    "holdfast.canary",
    "holdfast.config",
    "holdfast.detect",
    "holdfast.engines",
    "holdfast.engines.aws",
    "holdfast.engines.postgres",
    "holdfast.engines.sqlite",
    "holdfast.evacuate",
    "holdfast.evacuate.journals",
    "holdfast.metrics",
    "holdfast.middleware",
    "holdfast.queue",
    "holdfast.queue.backends.memory",
    "holdfast.queue.backends.sql",
    "holdfast.queue.worker",
    "holdfast.shards",
    "holdfast.shards.designs",
    "holdfast.shards.report",
    "holdfast.shards.stores",
    "holdfast.simulate",
    "holdfast.simulate.zones",
    "holdfast.status",
    "holdfast.status.export",
    "holdfast.status.sns",
    "holdfast.status.sources",
    "holdfast.status.stores",
    "holdfast.telemetry",
    "holdfast.testing",
    "holdfast.testing.calls",
    "holdfast.testing.queue",
    "holdfast.watch",
)
MODULES = (
    "holdfast.aurora.plan",
    "holdfast.aurora.preflight",
    "holdfast.aurora.progress",
    "holdfast.aurora.stack",
    "holdfast.calls.events",
    "holdfast.calls.metrics",
    "holdfast.calls.outcomes",
    "holdfast.calls.periodic",
    "holdfast.detect.detectors.calibrated",
    "holdfast.detect.detectors.outlier",
    "holdfast.detect.detectors.threshold",
    "holdfast.evacuate.action",
    "holdfast.evacuate.journal",
    "holdfast.evacuate.journals.dynamodb",
    "holdfast.evacuate.journals.memory",
    "holdfast.queue.alarms",
    "holdfast.queue.backend",
    "holdfast.queue.events",
    "holdfast.queue.metrics",
    "holdfast.queue.open",
    "holdfast.queue.outcomes",
    "holdfast.queue.watcher",
    "holdfast.shards.batch",
    "holdfast.shards.schemes",
    "holdfast.simulate.aws.control_plane",
    "holdfast.simulate.aws.region",
    "holdfast.status.export.discovery",
    "holdfast.status.metrics",
    "holdfast.status.stores.dynamodb",
    "holdfast.status.stores.s3",
    "holdfast.telemetry.meter",
    "holdfast.telemetry.sinks.agent",
    "holdfast.telemetry.sinks.files",
    "holdfast.telemetry.sinks.lines",
    "holdfast.telemetry.sinks.metrics",
    "holdfast.telemetry.sinks.server",
)
"""Public modules that no package re-exports, apart from those of `holdfast.testing`."""

NO_VARIABLE = "-"
REQUIRED = "required"


class Setting(NamedTuple):
    variable: str
    """`NO_VARIABLE` for what is in a list: the environment cannot say which element is meant."""
    default: str
    """As `holdfast check` shows it, or `REQUIRED`."""
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
        arguments = group.assemble_argument_collection(parse_docstring=True, default_parameter=app.default_parameter)
        yield name, {word for argument in arguments if argument.show for word in argument.names}
    for word in group:
        if not word.startswith("-"):
            yield from _walk(group[word], f"{name} {word}")


def settings() -> dict[str, Setting]:
    """Every setting; of those in a list one for all elements, `workload[].name`."""
    found = {
        format_path(path): Setting(
            NO_VARIABLE if ANY_INDEX in path else format_variable_name(path), _shown(path), _limits(kind)
        )
        for path, kind in list_setting_types().items()
    }
    del found[DETECTOR]
    found[f"{DETECTOR}.name"] = Setting(NO_VARIABLE, f'"{DEFAULT_DETECTOR}"', frozenset(DETECTORS.names()))
    for name in DETECTORS.names():
        defaults = msgspec.to_builtins(DETECTORS.get(name).options_type())
        for option, value in defaults.items():
            found[f"{DETECTOR}.{option}"] = Setting(NO_VARIABLE, msgspec.json.encode(value).decode(), frozenset())
    for table, plugins in ((CHANNEL_OPTIONS, CHANNELS), (ACTION_OPTIONS, ACTIONS)):
        del found[table]
        for name in plugins.names():
            for field in msgspec.structs.fields(plugins.get(name).options_type):
                default = REQUIRED if field.required else msgspec.json.encode(field.default).decode()
                found[f"{table}.{field.name}"] = Setting(NO_VARIABLE, default, _limits(field.type))
    return found


DETECTOR = "workload[].detector"
"""A table whose settings are those of the detector that it names."""
CHANNEL_OPTIONS = "alert[].options"
"""A table whose settings are those of the channel of the alert."""
ACTION_OPTIONS = "evacuation.action[].options"
"""A table whose settings are those of the action."""


def _shown(path: SettingPath) -> str:
    """The default of a setting, looked up from the top: `ANY_INDEX` steps into the elements of a list."""
    kind: Any = Settings
    value: Any = Settings()
    for step in path:
        if step == ANY_INDEX:
            kind, value = get_args(kind)[0], msgspec.NODEFAULT
            continue
        [field] = [field for field in msgspec.structs.fields(kind) if field.name == step]
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        kind, value = field.type, getattr(value, field.name, default)
    return REQUIRED if value is msgspec.NODEFAULT else msgspec.json.encode(value, enc_hook=str).decode()


def _limits(kind: Any) -> frozenset[str]:
    if get_origin(kind) is Literal:
        return frozenset(map(str, get_args(kind)))
    if kind is bool:
        return frozenset({"true", "false"})
    if get_origin(kind) is not Annotated:
        return frozenset()
    notes = [note for note in get_args(kind)[1:] if isinstance(note, msgspec.Meta)]
    bounds = [getattr(note, name) for note in notes for name in ("gt", "ge", "lt", "le", "min_length", "max_length")]
    lengths = [int(bound) for note in notes for bound in re.findall(r"(?<=[{,])\d+(?=[,}])", note.pattern or "")]
    return frozenset(
        f"{bound:g}" if bound < 1e5 else f"{bound:.0f}" for bound in (*bounds, *lengths) if bound is not None
    )


def public_names() -> dict[str, set[str]]:
    """The public names of every public module."""
    found = {name: set(importlib.import_module(name).__all__) for name in PACKAGES}
    found |= {name: _defined(name) for name in MODULES}
    for module in pkgutil.iter_modules(holdfast.testing.__path__, "holdfast.testing."):
        names = _defined(module.name)
        if not any(name in found["holdfast.testing"] for name in names):  # else it is re-exported, and known by that
            found[module.name] = names
    return found


def packages() -> set[str]:
    """Every package that says what it offers.

    Except the command line, which is no library, and the actions of evacuation, which settings name.
    """
    walked = [module.name for module in pkgutil.walk_packages(holdfast.__path__, "holdfast.") if module.ispkg]
    others = ("holdfast.cli.", "holdfast.evacuate.actions.")
    library = [name for name in ("holdfast", *walked) if not f"{name}.".startswith(others)]
    return {name for name in library if hasattr(importlib.import_module(name), "__all__")}


def _defined(name: str) -> set[str]:
    """What a module offers: its `__all__`, or without one its own classes, functions and constants."""
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        return set(module.__all__)
    source = inspect.getsource(module)
    assigned = re.findall(r"^([A-Za-z]\w*)(?:: [^=\n]+)? = ", source, re.MULTILINE)
    defined = re.findall(r"^(?:class|def|async def) ([A-Za-z]\w*)", source, re.MULTILINE)
    return {word for word in (*assigned, *defined) if not isinstance(getattr(module, word), TypeVar | logging.Logger)}


def errors() -> dict[str, Failure]:
    """Every error class, with how it is told."""
    for name in PACKAGES:
        importlib.import_module(name)  # a part may have errors of its own
    # One without a slug of its own is told as the class above it: such as what is an error of httpx as well.
    return {kind.__name__: _failure(kind) for kind in _family(HoldfastError) if "slug" in vars(kind)}


def _family(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    if kind.__module__.partition(".")[0] == "holdfast":  # tests make some of their own
        yield kind
        for child in kind.__subclasses__():
            yield from _family(child)


def _failure(kind: type[HoldfastError]) -> Failure:
    code = next((code for known, code in EXIT_CODES.items() if issubclass(kind, known)), EXIT_FAILED)
    return Failure(kind.slug, int(problems._find_status(kind)), code)


def exit_codes() -> set[int]:
    return {0, EXIT_FAILED, EXIT_INTERRUPTED, *EXIT_CODES.values()}


def routes() -> dict[str, Route]:
    """Every route, `GET /path`, as the server's own description has it; and those that it leaves out."""
    nothing: Any = None  # what the routes work on is not needed to describe them
    server = create_app(Services(**{field.name: nothing for field in dataclasses.fields(Services)}))
    paths: Mapping[str, Any] = server.openapi_schema.to_schema()["paths"]
    described = {
        f"{method.upper()} {path}": Route(
            "security" in operation, frozenset(int(status) for status in operation["responses"] if int(status) >= 400)
        )
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    hidden = {
        f"GET {route.path}": Route(needs_credential=False, errors=frozenset())
        for route in server.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        # Litestar's own pages are behind a guard that lets nobody through.
        if "GET" in handler.http_methods and not handler.resolve_include_in_schema() and not handler.resolve_guards()
    }
    # Tools have no words for them in a description; each begins as a GET.
    sockets = {
        f"GET {route.path}": Route(needs_credential=False, errors=frozenset())
        for route in server.routes
        if isinstance(route, WebSocketRoute)
    }
    return {**described, **hidden, **sockets}


OPTIONS: Mapping[str, Sequence[type[Any]]] = {
    "docs/reference/engines.md": (AwsOptions, ZoneOptions, PostgresOptions),
    "docs/reference/export.md": (
        AddressOptions,
        BucketOptions,
        GatewayOptions,
        ObjectCheck,
        CheckTiming,
        RecordOptions,
        RoutingControlCheck,
        ExistingHealthCheck,
        EndpointCheck,
    ),
    "docs/explanation/detection.md": (ThresholdOptions, CalibratedOptions, OutlierOptions),
}
"""Classes of options, by the page that describes them."""


def options(page: str) -> dict[str, dict[str, str]]:
    """The fields of the options that a page describes, with their defaults as Python writes them."""
    return {
        kind.__name__: {field.name: _default(field) for field in dataclasses.fields(kind)} for kind in OPTIONS[page]
    }


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
