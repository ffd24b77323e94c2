"""Recognize a process that holds a lease or a claim, to see whether it has ended."""

import os
import secrets
import socket
import sys
import uuid
from pathlib import Path

import msgspec


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, so that others on its host can see that it has ended."""

    host: str
    """The name of the host, for people."""
    boot: str
    """Differs between hosts, boots of a host, and namespaces of processes."""
    pid: int
    started: str
    """When it started, in ticks since the boot; "" if the system does not tell."""
    token: str
    """Differs between any two processes."""

    @classmethod
    def of_this_process(cls) -> "ProcessIdentity":
        pid = os.getpid()
        _, started = _read_stat(pid)
        return cls(socket.gethostname(), _read_boot(), pid, started, secrets.token_hex(8))

    def has_ended(self) -> bool:
        """Return whether the process has certainly ended. False if it runs, or cannot be seen from here."""
        if self.boot != _read_boot():
            return False
        if sys.platform == "linux":
            state, started = _read_stat(self.pid)
            if state:
                return state in ("Z", "X") or started != self.started
        try:  # also on Linux, where processes of other users may be hidden
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False


def _read_boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()}/{uuid.getnode()}"


def _read_stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and when it started; "" and "" if there is none, or the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def encode_identity(identity: ProcessIdentity) -> str:
    """Return the identity as text, to be stored."""
    return msgspec.json.encode(identity).decode()


def decode_identity(text: str) -> ProcessIdentity:
    """Return the identity in a text. If another release wrote it, and it cannot be read, it never counts as ended."""
    try:
        return msgspec.json.decode(text, type=ProcessIdentity)
    except msgspec.DecodeError:
        return ProcessIdentity("", "", 0, "", "")
