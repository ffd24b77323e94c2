"""`holdfast completion`: commands and options at the press of a key."""

from typing import Literal

from holdfast.cli.commands import app


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a completion script for a shell: `bash`, `zsh` or `fish`.

    Example: holdfast completion bash >> ~/.bashrc
    """
    print(app.generate_completion(prog_name="holdfast", shell=shell))
