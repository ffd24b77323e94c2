"""`holdfast aurora`: change the instance class of Aurora clusters on a schedule.

`deploy.py` has the commands that create and remove what runs need in AWS, `schedules.py` those for clusters and
schedules, `runs.py` those for runs. `simulate.py` needs no account.
"""

from cyclopts import App

from holdfast.cli.aurora.deploy import deploy, package, remove, template
from holdfast.cli.aurora.runs import history, run, status, stop
from holdfast.cli.aurora.schedules import clusters, schedule, unschedule
from holdfast.cli.aurora.simulate import simulate
from holdfast.cli.commands import EXIT_CODES_HELP

__all__ = ["app"]

app = App(
    name="aurora",
    help="Change the instance class of Aurora clusters on a schedule, with the interruption of one failover.\n\n"
    "Example: holdfast aurora deploy --prefix shop --network none",
    help_epilogue=EXIT_CODES_HELP,
)
# Imported, not registered by name like the groups: their help texts are listed, and they share their imports anyway.
for _command in (
    clusters,
    deploy,
    history,
    package,
    remove,
    run,
    schedule,
    simulate,
    status,
    stop,
    template,
    unschedule,
):
    app.command(_command, help_epilogue=EXIT_CODES_HELP)
