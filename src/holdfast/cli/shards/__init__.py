"""`holdfast shards`: the shards of tenants, the effects of changes to the fleet, and the effects of failures.

Works on the store of the settings, or on files alone. Each module is a few commands; `inputs.py` reads files.
"""

from cyclopts import App

from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.shards.change import change, plan
from holdfast.cli.shards.failure import blast_radius, report
from holdfast.cli.shards.tenants import assign, fleet, forget, isolate, release, remove, suspects

__all__ = ["app"]

app = App(
    name="shards",
    help="Assign shards to tenants, plan changes of the fleet, and show what a failure would hit.\n\n"
    "Example: holdfast shards plan fleet.csv --size 4 --overlap 2",
    help_epilogue=EXIT_CODES_HELP,
)
# Functions, not import paths as for command groups: they share their imports, and the group's help needs all of them.
for _command in (assign, blast_radius, change, fleet, forget, isolate, plan, release, remove, report, suspects):
    app.command(_command, help_epilogue=EXIT_CODES_HELP)
