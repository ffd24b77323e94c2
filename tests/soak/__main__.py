"""`python -m tests.soak`: the soak from the command line; see `scripts/soak --help`."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.postgres import RestartablePostgres
from tests.services.run import Run
from tests.soak.extremes import extremes
from tests.soak.restarts import restarts
from tests.soak.run import Plan, Result, soak
from tests.soak.stores import PostgresStore, SqliteStore, Store

KILLS_PER_FREEZE = 20


def main() -> int:
    usual = Plan()
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Kill producers and workers of a queue, and count."
    )
    parser.add_argument("--backend", choices=("sqlite", "postgres", "all"), default="all")
    parser.add_argument(
        "--messages", type=int, default=usual.messages, help="per backend (default: %(default)s; 0: no kills)"
    )
    parser.add_argument("--kills", type=int, default=usual.kills, help="per backend (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=usual.seed, help="who is killed when, and what is sent together")
    parser.add_argument(
        "--seconds", type=float, default=usual.seconds, help="per backend at most (default: %(default)s)"
    )
    parser.add_argument(
        "--extremes",
        type=int,
        default=1_000_000,
        help="messages of one tenant afterwards (default: %(default)s; 0: none)",
    )
    parser.add_argument(
        "--restarts", type=int, default=100, help="restarts of PostgreSQL under load afterwards (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="no progress and no table, only the last line")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    plan = Plan(
        messages=given.messages,
        kills=given.kills,
        freezes=given.kills // KILLS_PER_FREEZE,
        seed=given.seed,
        seconds=given.seconds,
    )

    def say(text: str) -> None:
        if not given.json:
            print(text, flush=True)

    results: list[Result] = []
    for name in ("sqlite", "postgres") if given.backend == "all" else (given.backend,):
        with _store(name) as (store, directory):
            result = soak(store, plan, directory, say) if plan.messages else Result(name)
            if given.extremes:
                figures, violations = extremes(store, given.extremes, say)
                result.figures |= figures
                result.violations += violations
            if isinstance(store, PostgresStore) and given.restarts:
                figures, violations = restarts(store.server, given.restarts, given.seed, say)
                result.figures |= figures
                result.violations += violations
            results.append(result)
    for result in results:
        say(_table(result))
    is_well = not any(result.violations for result in results)
    print(json.dumps({"is_well": is_well, "backends": [result.record() for result in results]}))
    return 0 if is_well else 1


@contextmanager
def _store(name: str) -> Iterator[tuple[Store, Path]]:
    """An empty store and a folder for its processes, both gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-soak-"))
    services = Run.begin() if name == "postgres" else None
    try:
        if services is None:
            yield SqliteStore(directory), directory
        else:
            server = RestartablePostgres.create(services.private("soak"), services.controller)
            yield PostgresStore(server), directory
    finally:
        if services is not None:
            services.end()
        shutil.rmtree(directory, ignore_errors=True)


def _table(result: Result) -> str:
    lines = [f"\n{result.backend}, {result.seconds:g} s"]
    for name, value in result.figures.items():
        shown = ", ".join(f"{what} {count}" for what, count in value.items()) if isinstance(value, dict) else value
        lines.append(f"  {name:32} {shown}")
    lines += [f"  VIOLATION: {violation}" for violation in result.violations] or ["  no violations"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
