"""`holdfast completion`: commands and options at the press of a key."""

from typing import Literal

from holdfast.cli.commands import app
from holdfast.cli.output import Json, print_json


def completion(shell: Literal["bash", "zsh", "fish"], /, *, json: Json = False) -> None:
    """Print a completion script for a shell: `bash`, `zsh` or `fish`.

    Example: holdfast completion bash >> ~/.bashrc
    """
    script = app.generate_completion(prog_name="holdfast", shell=shell)
    if json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
