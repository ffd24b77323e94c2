"""The `holdfast` command: one module for each group of commands, imported when it is used.

May import everything below it. Start reading at `commands.py`; all output goes through `output.py`.
"""

import errno
import os
import sys
from collections.abc import Sequence

import holdfast

__all__ = ["main"]


EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
_OUTPUT_ERRORS = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except OSError as error:
        failure = _find_output_failure(error)
        if failure is None:
            raise
        # Without this, the flush at exit would fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(failure, BrokenPipeError):  # a closed pipe is no error: `holdfast ... | head`
            _print_error("output", f"standard output cannot be written: {failure.strerror}", words)
        return EXIT_FAILED
    except KeyboardInterrupt as error:  # here, because it may come while the commands are still being imported
        _print_error("interrupted", str(error) or "interrupted", words)
        return EXIT_INTERRUPTED
    return code


def _find_output_failure(error: OSError) -> OSError | None:
    """Return the error of standard output if it may be the cause of `error`, or None if it can be written to.

    What could not be written may be left in the buffer. If not, only another line shows the error again.
    """
    may_be_output = error.filename is None and error.errno in _OUTPUT_ERRORS
    try:
        print(end="\n" if may_be_output else "", flush=True)
    except OSError as failure:
        return failure
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
