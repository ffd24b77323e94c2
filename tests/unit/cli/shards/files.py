"""A small fleet and its tenants, for the tests of `holdfast shards`: three zones of five, shards of three."""

import copy
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.cli.shards.store import ShardStoreOptions
from holdfast.shards import Assignments
from tests.unit.cli.conftest import Run

ZONES = ("az1", "az2", "az3")
FIRST = [f"{zone}-{number}" for zone in ZONES for number in range(1, 6)]
TENANTS = [f"tenant-{number:02}" for number in range(1, 21)]
NO_STORE = (
    "there are no shards in holdfast-data: make some with `holdfast shards plan FILE --size N --overlap N --apply`, "
    "or name another store with --settings or --data-directory"
)
NO_LAYOUT = "there is no layout of shards yet: apply one, as with `holdfast shards plan FILE --apply`"
FACTS = {
    "workers": 15,
    "spare": 0,
    "size": 3,
    "overlap": 1,
    "design": "parity",
    "shards": 25,
    "attackers_survived": 2,
    "capacity_lost": 0.2,
    "empty_slots": 0,
}


def write_fleet(workers: Iterable[str] = FIRST, *, path: str = "fleet.csv", **hosts: str) -> str:
    """A file of workers such as az1-2, each in its zone; some on machines, named with _ for -."""
    rows = [f"{name},{name.partition('-')[0]},{hosts.get(name.replace('-', '_'), '')}\n" for name in workers]
    Path(path).write_text("worker,zone,host\n" + "".join(rows))
    return path


class Established(NamedTuple):
    """The files of a folder in which a fleet is kept, and the shards of its tenants."""

    files: dict[Path, bytes]
    shards: dict[str, list[str]]


ESTABLISHED: dict[tuple[tuple[str, ...], tuple[str, ...]], Established] = {}
"""What commands made once, by the spare workers and the tenants; tests in other folders begin with copies."""


def establish(run: Run, *spare: str, tenants: Iterable[str] = TENANTS) -> dict[str, list[str]]:
    """Keep the small fleet, then add spare workers; returns the shards of the tenants."""
    wanted = (spare, tuple(tenants))
    here = Path()
    is_empty = not any(here.iterdir()) and not any(name.startswith("HOLDFAST_") for name in os.environ)
    if not is_empty:  # settings may say that it is kept elsewhere
        return establish_anew(run, *wanted)
    if wanted not in ESTABLISHED:
        shards = establish_anew(run, *wanted)
        files = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
        ESTABLISHED[wanted] = Established(files, shards)
    else:
        for path, content in ESTABLISHED[wanted].files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return copy.deepcopy(ESTABLISHED[wanted].shards)


def establish_anew(run: Run, spare: Iterable[str], tenants: Iterable[str]) -> dict[str, list[str]]:
    assert run("shards", "plan", write_fleet(), "--size", "3", "--overlap", "1", "--apply").code == 0
    if spare:
        assert run("shards", "change", "--add", write_fleet(spare, path="spare.csv"), "--apply").code == 0
    return shards_of(run, *tenants)


def shards_of(run: Run, *tenants: str) -> dict[str, list[str]]:
    """Who is served by which workers."""
    found = run("shards", "assign", *(tenants or TENANTS), "--json").result
    return {entry["tenant"]: entry["workers"] for entry in found}


def members_of(*tenants: str) -> dict[str, list[str]]:
    """Who has which workers in its shard, drained ones too, as the library says."""
    with kept() as assignments:
        return {tenant: list(assignments.find(tenant).workers) for tenant in tenants or TENANTS}


def without(shards: dict[str, list[str]], *drained: str) -> dict[str, list[str]]:
    """The same shards, less these workers."""
    return {tenant: [worker for worker in some if worker not in drained] for tenant, some in shards.items()}


def having(shards: dict[str, list[str]], worker: str) -> list[str]:
    return [tenant for tenant, workers in shards.items() if worker in workers]


@contextmanager
def kept(name: str = "default") -> Iterator[Assignments]:
    """What is kept, as the library opens it."""
    with ShardStoreOptions(name=name).open() as assignments:
        yield assignments


def cells(line: str) -> list[str]:
    """The cells of a line of a table, which are two blanks apart at least."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def rows(text: str) -> dict[str, str]:
    """A table of two columns, up to the first empty line."""
    lines = [line for line in text.partition("\n\n")[0].splitlines()[1:] if "  " in line.strip()]
    return {found[0]: found[-1] for found in map(cells, lines)}


class Meanwhile(io.StringIO):
    """A standard input; before it is read, something happens."""

    def __init__(self, text: str, happens: Callable[[], Any]) -> None:
        super().__init__(text)
        self._happens = happens

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # of lines, as the one of a file
        self._happens()
        return super().__iter__()
