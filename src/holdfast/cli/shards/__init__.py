"""`holdfast shards`: who has which workers, what a change would move, and what a failure would hit.

Works on the store of the settings, or on files alone. Each module is a few commands; `inputs.py` reads files.
"""

from cyclopts import App

from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.shards.change import grow, plan
from holdfast.cli.shards.failure import blast_radius, report
from holdfast.cli.shards.tenants import assign, fleet, forget, isolate, release, remove, suspects

__all__ = ["app"]

app = App(
    name="shards",
    help="Give tenants shards, plan changes of the fleet, see what a failure would hit.\n\n"
    "Example: holdfast shards plan fleet.csv --size 4 --overlap 2",
    help_epilogue=EXIT_CODES_HELP,
)
# Not by name, as the groups are: they import the same, and their help lists what each of them does.
for _command in (assign, blast_radius, fleet, forget, grow, isolate, plan, release, remove, report, suspects):
    app.command(_command, help_epilogue=EXIT_CODES_HELP)
