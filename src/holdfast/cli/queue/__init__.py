"""`holdfast queue`: send messages, show queues, handle dead letters, and change the limits of tenants.

Works directly on the store of the settings, or on the one that --backend names. Each module has one or two commands;
`store.py` opens the store, `rates.py` computes how fast a queue changes.
"""

from cyclopts import App

from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.queue.dead import dead_letters, discard, redrive
from holdfast.cli.queue.depth import depth, list_
from holdfast.cli.queue.limits import limits, resize
from holdfast.cli.queue.send import send
from holdfast.cli.queue.sweep import sweep
from holdfast.cli.queue.top import top

__all__ = ["app"]

app = App(
    name="queue",
    help="Send messages, show queues, put back or delete dead letters, and change the limits of tenants.\n\n"
    "Example: holdfast queue depth",
    help_epilogue=EXIT_CODES_HELP,
)
# Imported, not registered by name like the groups: their help texts are listed, and they share their imports anyway.
for _command in (dead_letters, depth, discard, limits, redrive, resize, send, sweep, top):
    app.command(_command, help_epilogue=EXIT_CODES_HELP)
app.command(list_, name="list", help_epilogue=EXIT_CODES_HELP)
