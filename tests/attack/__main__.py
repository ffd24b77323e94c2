"""`python -m tests.attack`: all attacks, a table, and one line of JSON; see `scripts/attack`."""

import json
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.attack.attacks import (
    IDLE_CONNECTIONS,
    Result,
    header_floods,
    idle_connections,
    invalid_upgrades,
    slow_connections,
    unexpected_requests,
)
from tests.integration.server.process import HoldfastServer

LOW_LIMIT = 1000
"""A limit of connections that idle ones exceed."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < IDLE_CONNECTIONS + 1000:
        sys.exit(f"the attack needs {IDLE_CONNECTIONS + 1000} open files, and {files} are allowed: see `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    begun = time.monotonic()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-attack-") as name:
        directory = Path(name)
        with HoldfastServer.start(directory / "debug", settings="[log]\nlevel = 'debug'\n") as server:
            for with_credentials in (True, False):
                results.append(show(unexpected_requests(server, directory, with_credentials=with_credentials)))
        with HoldfastServer.start(directory / "usual") as server:
            limit = int(server.entry(message="starting")["max_connections"])
            results += [show(slow_connections(server)), show(header_floods(server))]
            results += [show(invalid_upgrades(server)), show(idle_connections(server, limit))]
        with HoldfastServer.start(directory / "low", settings=f"[server]\nmax_connections = {LOW_LIMIT}\n") as server:
            results.append(show(idle_connections(server, LOW_LIMIT)))
    is_well = not any(result.violations for result in results)
    attacks = {result.attack: {**result.figures, "violations": result.violations} for result in results}
    print(json.dumps({"is_well": is_well, "seconds": round(time.monotonic() - begun, 1), "attacks": attacks}))
    return 0 if is_well else 1


def show(result: Result) -> Result:
    """Print an attack as a part of the table."""
    lines = [result.attack, *(f"  {name:28} {value}" for name, value in result.figures.items())]
    lines += [f"  VIOLATION: {violation}" for violation in result.violations] or ["  no violations"]
    print("\n".join(lines), flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
