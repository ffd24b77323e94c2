"""Processes that start at once: forks of a process that has imported Holdfast and what it needs.

A command takes 0.2 seconds of a core and a server 0.7, nearly all of it for imports, and the tests start about a
thousand. `Preloaded` is a `subprocess.Popen` for commands of Python; `install_shims` gives a shell a `holdfast` and a
`python` that start in the same way. What they start has a pid, an environment, a folder and streams of its own. It
differs from a program that was executed in what is imported already: tests about starting, imports and limits of a
process use `subprocess` instead. So does everything where there is no Linux.

One server, `python -m tests.support.preloaded`, forks for all workers of a run. A request is
`(arguments, folder, environment)`, marshalled, after its length in four bytes, and carries the three standard streams.
The server answers with the pid and, when the process has ended, with its wait status, in four bytes each. It kills a
process whose client has hung up.
"""

import atexit
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[2]
ADDRESS = "TESTS_PRELOADED"
"""The variable that tells the workers of a run where the server listens."""
USED_LATER = (
    "anyio._backends._asyncio",
    "boto3",
    "cyclopts.help",
    "httpx",
    "litestar._kwargs",
    "psycopg_pool",
    "rich.table",
    "sqlite3",
    "uvicorn.lifespan.off",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""What Holdfast imports when it is used, not when it is imported."""

SHIM = """\
#!{python} -IS
import _signal, _socket, marshal, os, sys
connection = _socket.socket(_socket.AF_UNIX)
connection.connect({address!r})
arguments = [os.fsencode(word) for word in sys.argv]
body = marshal.dumps((arguments, os.fsencode(os.getcwd()), dict(os.environb)))
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in range(3))
connection.sendmsg([len(body).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while body:
    body = body[connection.send(body):]
pid = int.from_bytes(connection.recv(4), "big")
if not pid:
    sys.exit("the server of preloaded processes has ended: what it printed says why")
for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1):
    _signal.signal(number, lambda number, _: os.kill(pid, number))
status = connection.recv(4)
code = os.waitstatus_to_exitcode(int.from_bytes(status, "big")) if status else 70
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""A program that has another run in its name. It starts within a hundredth of a second, as it imports nothing else."""


class Request(NamedTuple):
    """What to run: `arguments` begin with the program, `python` or `holdfast` in any folder."""

    arguments: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]

    def send(self, connection: socket.socket, streams: Sequence[int]) -> None:
        body = marshal.dumps(tuple(self))
        socket.send_fds(connection, [len(body).to_bytes(4, "big")], streams)
        connection.sendall(body)

    @classmethod
    def receive(cls, connection: socket.socket) -> tuple["Request", list[int]]:
        """Return a request and its streams. Raises EOFError if the client has hung up."""
        length, streams, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as file:
            body = file.read(int.from_bytes(length, "big"))
        if len(streams) == 3 and len(body) == int.from_bytes(length, "big"):
            return cls(*marshal.loads(body)), streams
        for stream in streams:
            os.close(stream)
        raise EOFError("the client has hung up")


class Server:
    """Forks for those who connect. Runs in a process of its own, without threads."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(0, selectors.EVENT_READ, sys.exit)  # readable when the test process has ended
        self._connections: dict[int, tuple[int, socket.socket]] = {}
        self._forked: Request | None = None

    def serve(self) -> Request:
        """Fork again and again; returns, in each process that was forked, what it is to run."""
        while True:
            for key, _ in self._selector.select():
                key.data()
                if self._forked is not None:
                    return self._forked

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            request, streams = Request.receive(connection)
        except (OSError, EOFError):  # a client that was killed
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            self._forked = request
            connection.close()
            self._close()
        else:
            self._connections[pid] = os.pidfd_open(pid), connection
            self._selector.register(self._connections[pid][0], selectors.EVENT_READ, lambda: self._reap(pid))
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._kill(pid))
            _tell(connection, pid)
        for stream in streams:
            os.close(stream)

    def _kill(self, pid: int) -> None:
        if pid in self._connections:  # else it has ended, which was told in the same moment
            self._selector.unregister(self._connections[pid][1])
            os.kill(pid, signal.SIGKILL)

    def _reap(self, pid: int) -> None:
        ended, connection = self._connections.pop(pid)
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(ended)
        os.close(ended)
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
            _tell(connection, status)
        connection.close()

    def _close(self) -> None:
        self._selector.close()
        self._listener.close()
        for ended, connection in self._connections.values():
            os.close(ended)
            connection.close()


def _tell(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # a client that has hung up: the selector tells that, too
        connection.sendall(number.to_bytes(4, "big"))


def preload() -> None:
    """Import Holdfast, and what it uses later.

    Not what it has for tests, which pytest wants to import itself, and not what imports moto, which few tests need.
    """
    import litestar

    import holdfast

    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not any(part in module.name for part in ("__main__", "testing", "simulate.aws")):
            importlib.import_module(module.name)
    for name in USED_LATER:
        importlib.import_module(name)
    litestar.Litestar(logging_config=None)  # an application imports its default plugins when it is created
    del sys.modules["pydantic"]  # of these. If Cyclopts finds it, it uses it, which it does in no real command
    if threading.active_count() > 1:
        raise RuntimeError(f"an import has started a thread: {threading.enumerate()}")


def run(request: Request) -> NoReturn:
    """Run the program to its end, and end this process as Python does: threads, exit functions, streams.

    But without taking all that was imported to pieces: that would copy all memory that is shared with the server, and
    takes a tenth of a second.
    """
    code: object = 0
    try:
        _run(request)
    except SystemExit as exit_:
        code = exit_.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
        if isinstance(error, KeyboardInterrupt):
            code = -signal.SIGINT
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python has it
    sys.stderr.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF if isinstance(code, int) else code is not None)


def _run(request: Request) -> None:
    """Do what Python does when it is executed: take over folder, environment and streams, and run the program."""
    os.chdir(request.folder)
    os.environb.clear()
    os.environb.update(request.environment)
    for stream, name in enumerate(("stdin", "stdout", "stderr")):
        opened = _open(stream)
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    warnings.resetwarnings()
    if os.environ.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    elif "PYTHONWARNINGS" in os.environ:
        raise ValueError("of PYTHONWARNINGS only `error` is understood here")
    path = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = [*path, *(folder for folder in sys.path if folder != str(ROOT))]
    program, *words = map(os.fsdecode, request.arguments)
    if Path(program).name == "holdfast":
        words = ["-m", "holdfast.cli", *words]
    run_python(words)


def run_python(words: list[str]) -> None:
    """Run what follows `python` on a command line."""
    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del words[:2]
    what, *words = words
    if what == "-c":
        code, *sys.argv[1:] = words
        sys.argv[0] = "-c"
        sys.path.insert(0, "")
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), module.__dict__)
    elif what == "-m":
        name, *words = words
        sys.argv[:] = [name, *words]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif not what.startswith("-"):
        sys.argv[:] = [what, *words]
        sys.path.insert(0, str(Path(what).parent.resolve()))
        runpy.run_path(what, run_name="__main__")
    else:
        raise ValueError(f"the option {what} of Python is not understood here")


def _open(stream: int) -> IO[str]:
    if stream == 0:
        return io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8", errors="strict")
    return io.TextIOWrapper(
        open(stream, "wb", closefd=False),
        encoding="utf-8",
        errors="strict" if stream == 1 else "backslashreplace",
        line_buffering=stream == 2 or os.isatty(stream),
    )


def start_server() -> bytes:
    """Start the server, unless it runs; returns the name of its socket. Requests wait until it has imported all."""
    if ADDRESS not in os.environ:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("")  # Linux chooses a free name
            listener.listen(128)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded", str(listener.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONWARNINGS": "error"},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )
            _running.append(process)  # it ends when its standard input is closed, with this process
            os.environ[ADDRESS] = listener.getsockname().hex()
    return bytes.fromhex(os.environ[ADDRESS])


_running: list["subprocess.Popen[bytes]"] = []


if TYPE_CHECKING or sys.platform != "linux":
    Preloaded = subprocess.Popen
else:

    class Preloaded(subprocess.Popen):
        """Starts a command of Python. Takes the arguments of a Popen, but only its streams, `cwd` and `env` count."""

        def _execute_child(self, args: Any, *more: Any) -> None:
            cwd, env = more[4:6]
            pipes = more[9:15]
            streams = [given if given != -1 else own for own, given in enumerate((pipes[0], pipes[3], pipes[5]))]
            environment = os.environb if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
            request = Request([os.fsencode(word) for word in args], os.fsencode(cwd or Path.cwd()), dict(environment))
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.connect(start_server())
            request.send(self._connection, streams)
            self.pid = int.from_bytes(self._connection.recv(4), "big")
            if not self.pid:
                raise RuntimeError("the server of preloaded processes has ended: what it printed says why")
            self._child_created = True
            self._close_pipe_fds(*pipes)

        def _try_wait(self, wait_flags: int) -> tuple[int, int]:
            wait = 0 if wait_flags & os.WNOHANG else None
            if not select.select([self._connection], [], [], wait)[0]:
                return 0, 0
            status = self._connection.recv(4)
            self._connection.close()
            if not status:
                raise RuntimeError("the server of preloaded processes has ended: what it printed says why")
            return self.pid, int.from_bytes(status, "big")

        def _internal_poll(self, *_: Any, **__: Any) -> int | None:
            if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
                try:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
                finally:
                    self._waitpid_lock.release()
            return self.returncode


def run_preloaded(
    arguments: Sequence[str | bytes], *, timeout: float, piped: bytes | str | None = None, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """Run a command to its end with `piped` as its input, as `subprocess.run` does, and capture what it prints."""
    pipe = subprocess.PIPE
    with Preloaded(arguments, stdin=None if piped is None else pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            printed, complaints = process.communicate(piped, timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, printed, complaints)


def install_shims(folder: Path) -> None:
    """Write programs `holdfast` and `python` into `folder` that start preloaded processes."""
    if sys.platform == "linux":
        for name in ("holdfast", "python"):
            file = folder / name
            file.write_text(SHIM.format(python=shlex.quote(sys.executable), address=start_server()))
            file.chmod(0o755)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        preload()
        gc.collect()
        gc.freeze()
        wanted = Server(listening).serve()
    run(wanted)
