"""`holdfast calls`: see what retries and timeouts do before a service meets them, and find a timeout in its latencies.

Works on files alone, and needs no store. `simulate.py` has the simulations, `advise.py` the timeout, and
`latencies.py` reads files.
"""

from cyclopts import App

from holdfast.cli.calls.advise import advise
from holdfast.cli.calls.simulate import amplification, jitter, metastability, timeout
from holdfast.cli.commands import EXIT_CODES_HELP

__all__ = ["app"]

app = App(
    name="calls",
    help="Find the timeout that fits latencies, and see what retries and timeouts do.\n\n"
    "Example: holdfast calls advise latencies.csv --rate 200",
    help_epilogue=EXIT_CODES_HELP,
)
_simulate = App(
    name="simulate",
    help="See what retries, backoff and timeouts do to a service, in seconds and without one.\n\n"
    "Example: holdfast calls simulate metastability --svg metastability.svg",
    help_epilogue=EXIT_CODES_HELP,
)
app.command(advise, help_epilogue=EXIT_CODES_HELP)
app.command(_simulate)
for _command in (amplification, jitter, metastability, timeout):
    _simulate.command(_command, help_epilogue=EXIT_CODES_HELP)
