"""Run one service, and end it when the test run is over, however the run ended.

A process of its own, so that even a test run ended by SIGKILL leaves nothing behind. `start.py` runs it as
`python guard.py DIRECTORY` and it detaches at once. While it lives it holds the lock on DIRECTORY/guard.lock: that,
unlike a process id, can be neither reused nor left behind as a zombie. Standard library only, to start quickly.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Often enough that ending a run is not felt, seldom enough that five guards cost nothing.
POLL_SECONDS = 0.1
# PostgreSQL, the slowest to stop, takes a tenth of a second for it.
STOP_TIMEOUT = 5.0


class Controller:
    """The pytest process that the service must not outlive."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._gone = False
        self._handle: int | None = None
        try:
            # A handle also tells when the process is dead but not yet reaped; only Linux has it.
            self._handle = os.pidfd_open(pid) if sys.platform == "linux" else None
        except ProcessLookupError:
            self._gone = True

    def gone(self, wait: float) -> bool:
        """Whether it has ended, after waiting up to `wait` seconds for that."""
        if self._gone:
            return True
        if self._handle is not None:
            return bool(select.select([self._handle], [], [], wait)[0])
        time.sleep(wait)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        return False


def end(service: subprocess.Popen[bytes], how: int) -> None:
    """Ask the service to stop, then kill what is left of its process group."""
    if service.poll() is None:
        service.send_signal(how)
        try:
            service.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            print(f"guard: did not stop within {STOP_TIMEOUT} s, killing it", flush=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(service.pid, signal.SIGKILL)
    service.wait()


def remove(directory: Path) -> None:
    """Remove what the service left, and the run's directory with the last service in it."""
    shutil.rmtree(directory, ignore_errors=True)
    if not any(entry.is_dir() for entry in directory.parent.iterdir()):
        shutil.rmtree(directory.parent, ignore_errors=True)


def keep(directory: Path, order: dict[str, Any]) -> int:
    """Run the service until it ends, the controller is gone, or this process is told to stop."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    controller = Controller(order["controller"])
    # Not the parent's groups either: a service that gives up root must give up all of it.
    identity = {"user": order["user"], "group": order["group"], "extra_groups": []} if order["user"] else {}
    status = 0
    for command in order["prepare"]:
        status = status or subprocess.run(command, env=order["environment"], check=False, **identity).returncode
    if status == 0:
        service = subprocess.Popen(order["command"], env=order["environment"], start_new_session=True, **identity)
        while service.poll() is None and not told and not controller.gone(POLL_SECONDS):
            pass
        end(service, order["stop"])
        status = service.returncode
    if controller.gone(0):
        remove(directory)
    return status


def main() -> int:
    directory = Path(sys.argv[1])
    order = json.loads((directory / "order.json").read_text())
    lock = (directory / "guard.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    # The lock goes on to the child, so whoever waits for this parent finds it held, and knows whom to tell to stop.
    child = os.fork()
    if child:
        (directory / "guard.pid").write_text(str(child))
        os._exit(0)
    try:
        return keep(directory, order)
    except OSError as error:
        print(f"guard: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
