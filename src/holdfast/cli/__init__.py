"""The `holdfast` command: one module for each group of commands, imported when it is used.

May import everything below it. Start reading at `commands.py`; all output goes through `output.py`.
"""

import os
import sys
from collections.abc import Sequence

import holdfast

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`holdfast ... | head`). Without this, the flush at exit would fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _run(words: Sequence[str]) -> int:
    if "--version" in words and {*words} <= {"--version", "--json"}:
        # Handled here, because scripts need it, and importing the commands takes ten times as long.
        print(f'{{"version": "{holdfast.__version__}"}}' if "--json" in words else holdfast.__version__)
        return 0
    from holdfast.cli.commands import run

    return run(words)
