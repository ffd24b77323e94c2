"""`holdfast queue`: send, see what waits and what is dead, put it back, change what tenants may do.

Works on the store of the settings directly, or on the one that --backend names. Each module is a command or two;
`store.py` opens the store, `rates.py` says how fast a queue changes.
"""

from cyclopts import App

from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.queue.dead import dead, redrive
from holdfast.cli.queue.depth import depth, list_
from holdfast.cli.queue.limits import limits, resize
from holdfast.cli.queue.send import send
from holdfast.cli.queue.sweep import sweep
from holdfast.cli.queue.top import top

__all__ = ["app"]

app = App(
    name="queue",
    help="Send messages, see what waits and what is dead, put it back, change what tenants may do.\n\n"
    "Example: holdfast queue depth",
    help_epilogue=EXIT_CODES_HELP,
)
# Not by name, as the groups are: they import the same, and their help lists what each of them does.
for _command in (dead, depth, limits, redrive, resize, send, sweep, top):
    app.command(_command, help_epilogue=EXIT_CODES_HELP)
app.command(list_, name="list", help_epilogue=EXIT_CODES_HELP)
