"""`holdfast calls`: simulate retries and timeouts, and find a timeout for measured latencies.

Needs no store. `simulate.py` has the simulations, `advise.py` the timeout, and `latencies.py` reads files.
"""

from cyclopts import App

from holdfast.cli.calls.advise import advise
from holdfast.cli.calls.simulate import amplification, jitter, metastability, timeout
from holdfast.cli.commands import EXIT_CODES_HELP

__all__ = ["app"]

app = App(
    name="calls",
    help="Find a timeout for measured latencies, and simulate retries and timeouts.\n\n"
    "Example: holdfast calls advise latencies.csv --rate 200",
    help_epilogue=EXIT_CODES_HELP,
)
_simulate = App(
    name="simulate",
    help="Simulate the effect of retries, backoff and timeouts on a service. Takes seconds, and needs no service.\n\n"
    "Example: holdfast calls simulate metastability --svg metastability.svg",
    help_epilogue=EXIT_CODES_HELP,
)
app.command(advise, help_epilogue=EXIT_CODES_HELP)
app.command(_simulate)
for _command in (amplification, jitter, metastability, timeout):
    _simulate.command(_command, help_epilogue=EXIT_CODES_HELP)
