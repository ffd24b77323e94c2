"""The `holdfast` command: one module for each group of commands, imported when it is used.

May import everything below it. Start reading at `commands.py`; all output goes through `output.py`.
"""

import io
import os
import sys
from collections.abc import Sequence

import holdfast

__all__ = ["main"]


EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except OSError:
        failure = _find_output_failure()
        if failure is None:
            raise
        # Without this, the flush at exit would fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(failure, BrokenPipeError):  # a closed pipe is no error: `holdfast ... | head`
            _print_error("output", f"standard output cannot be written: {failure.strerror}", words)
        return EXIT_FAILED
    except KeyboardInterrupt:  # here, because it may come while the commands are still being imported
        _print_error("interrupted", "interrupted", words)
        return EXIT_INTERRUPTED
    return code


def _find_output_failure() -> OSError | None:
    """Return the error of standard output, or None if it can be written to.

    A buffer still has what could not be written. Without one, only another line shows the error again.
    """
    try:
        print(end="\n" if isinstance(sys.stdout.buffer, io.RawIOBase) else "", flush=True)
    except OSError as error:
        return error
    return None


def _print_error(slug: str, text: str, words: Sequence[str]) -> None:
    print(f'{{"error":"{slug}","detail":"{text}"}}' if "--json" in words else f"holdfast: {text}", file=sys.stderr)


def _run(words: Sequence[str]) -> int:
    if "--version" in words and {*words} <= {"--version", "--json"}:
        # Handled here, because scripts need it, and importing the commands takes ten times as long.
        print(f'{{"version": "{holdfast.__version__}"}}' if "--json" in words else holdfast.__version__)
        return 0
    from holdfast.cli.commands import run

    return run(words)
