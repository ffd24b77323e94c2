"""`holdfast telemetry`: send the telemetry of services, and show the measurements of a workload."""

from cyclopts import App

from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.telemetry.send import send
from holdfast.cli.telemetry.show import show

__all__ = ["app"]

app = App(
    name="telemetry",
    help="Send the telemetry of services, and show the measurements of a workload over time.\n\n"
    "Example: holdfast telemetry show shop --by zone",
    help_epilogue=EXIT_CODES_HELP,
)
for _command in (send, show):
    app.command(_command, help_epilogue=EXIT_CODES_HELP)
