"""The command line: commands, exit codes and errors."""

from collections.abc import Sequence
from typing import Literal

from cyclopts import App, CycloptsError, Parameter

import holdfast
from holdfast._errors import (
    Backpressure,
    CallError,
    CredentialRefused,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    NotAllowed,
    SettingsError,
)
from holdfast.cli import EXIT_FAILED
from holdfast.cli.output import Json, print_error, print_result

EXIT_MISUSED, EXIT_UNAVAILABLE, EXIT_REFUSED = 2, 3, 4

EXIT_CODES: dict[type[Exception], int] = {
    CycloptsError: EXIT_MISUSED,
    InvalidValue: EXIT_MISUSED,
    SettingsError: EXIT_MISUSED,
    Backpressure: EXIT_UNAVAILABLE,
    CallError: EXIT_UNAVAILABLE,
    EngineUnavailable: EXIT_UNAVAILABLE,
    CredentialRefused: EXIT_REFUSED,
    NotAllowed: EXIT_REFUSED,
}

EXIT_CODES_HELP = """Exit codes: 0 success, 1 failed, 2 wrong arguments or settings, 3 a service is unavailable (try \
again), 4 not allowed, 130 interrupted. With --json, results go to standard output and an error to standard error, \
each as one JSON document.
"""

EPILOGUE = f"""Examples:

  holdfast demo
  holdfast up
  holdfast check holdfast.toml
  holdfast credential create --role viewer
  holdfast completion bash >> ~/.bashrc

{EXIT_CODES_HELP}"""

app = App(
    name="holdfast",
    help="Keeps a multi-zone, multi-tenant service running when one part of it fails.",
    help_format="plaintext",
    help_epilogue=EPILOGUE,
    version=holdfast.__version__,
    version_flags=["--version"],
    default_parameter=Parameter(negative=""),  # disables --no-json and --empty-endpoint
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
# By name, so that each command imports only its own modules.
app.command("holdfast.cli.agent:agent", name="agent", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.alarms:app", name="alarms")
app.command("holdfast.cli.alerts:app", name="alerts")
app.command("holdfast.cli.aurora:app", name="aurora")
app.command("holdfast.cli.server:backup", name="backup", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.calls:app", name="calls")
app.command("holdfast.cli.canary:canary", name="canary", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.server:check", name="check", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.commands:completion", name="completion", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.credential:app", name="credential")
app.command("holdfast.cli.demo:demo", name="demo", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.deploy:app", name="deploy")
app.command("holdfast.cli.export:app", name="export")
app.command("holdfast.cli.queue:app", name="queue")
app.command("holdfast.cli.replay:replay", name="replay", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.shards:app", name="shards")
app.command("holdfast.cli.simulate:app", name="simulate")
app.command("holdfast.cli.telemetry:app", name="telemetry")
app.command("holdfast.cli.server:up", name="up", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.verdict:app", name="verdict")
app.command("holdfast.cli.worker.command:worker", name="worker", help_epilogue=EXIT_CODES_HELP)
app.command("holdfast.cli.zone:app", name="zone")


def run(words: Sequence[str]) -> int:
    """Run one command. Return its exit code."""
    try:
        _import_help_texts(words)
        app(words, exit_on_error=False, print_error=False)
    except (HoldfastError, CycloptsError) as error:
        print_error(error, as_json="--json" in words)
        return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), EXIT_FAILED)
    return 0


def _import_help_texts(words: Sequence[str]) -> None:
    """Import the commands that a help page lists, because they contain their help texts."""
    group = app
    for word in words:
        if word in app.help_flags:
            break
        if word not in group:
            return
        group = group[word]
    for name in group:
        group[name]


def completion(shell: Literal["bash", "zsh", "fish"], /, *, json: Json = False) -> None:
    """Print a completion script for a shell: `bash`, `zsh` or `fish`.

    Example: holdfast completion bash >> ~/.bashrc
    """
    script = app.generate_completion(prog_name="holdfast", shell=shell)
    print_result({"shell": shell, "script": script}, script, as_json=json)
