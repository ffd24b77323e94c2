"""`holdfast worker`: handle the messages of queues."""

import os
import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

import holdfast
from holdfast._errors import InvalidValue
from holdfast.cli.output import SETTINGS, Json, SettingsOptions
from holdfast.queue import WorkerOptions

_DEFAULTS = WorkerOptions()


def worker(
    *targets: Annotated[
        str, Parameter(name="TARGET", help="MODULE:QUEUE, such as jobs:mail for the queue `mail` in jobs.py here.")
    ],
    processes: Annotated[int, Parameter(validator=Number(gte=1, lte=1024), help="Number of processes, 1 to 1024.")] = 1,
    concurrency: Annotated[
        int, Parameter(help="Messages handled at the same time, for each queue in each process.")
    ] = _DEFAULTS.concurrency,
    shutdown_timeout: Annotated[
        float, Parameter(help="Maximum seconds for handlers to finish when it stops; then messages are released.")
    ] = _DEFAULTS.shutdown_timeout,
    zone: Annotated[
        str | None,
        Parameter(
            help="The AZ-ID of this host: while it is out, nothing is leased. Overrides agent.zone. Default, if "
            "endpoints or a status store in AWS are set: the zone that AWS reports."
        ),
    ] = None,
    workload: Annotated[str | None, Parameter(help="The workload of this host. Overrides agent.workload.")] = None,
    endpoint: Annotated[
        list[str] | None,
        Parameter(
            help="A server that knows which zones are out; repeat it for more. Default: agent.endpoints if set, or the "
            "status store of the settings."
        ),
    ] = None,
    until_empty: Annotated[
        bool, Parameter(help="Exit when no message waits. Delayed messages are left for later.")
    ] = False,
    until_settled: Annotated[
        bool, Parameter(help="Exit when no message waits, and no worker has leased one, not even one that died.")
    ] = False,
    export: Annotated[
        list[str] | None,
        Parameter(
            help="Export metrics of each process, as NAME or NAME:ARGUMENT; repeat it for more. prometheus:9464 serves "
            "GET /metrics on this port, further processes on the following ports. emf writes lines for CloudWatch to "
            "standard output; the command then prints its own output to standard error."
        ),
    ] = None,
    options: SettingsOptions = SETTINGS,
    json: Json = False,
) -> None:
    """Handle the messages of queues, each with its own threads, until it is stopped (Ctrl-C or SIGTERM).

    Then it leases no more, lets handlers finish, and releases all other messages; a second Ctrl-C ends it immediately.
    With several processes, those that crash are restarted. Logs go to standard error.
    Example: holdfast worker jobs:mail jobs:reports --processes 4
    """
    from holdfast.cli.worker.work import INTERRUPTED, SignalHandlers, StopRequest, WorkerTask, run_workers
    from holdfast.metrics import EXPORTERS

    task = WorkerTask(
        targets=targets,
        concurrency=concurrency,
        shutdown_timeout=shutdown_timeout,
        until_empty=until_empty,
        until_settled=until_settled,
        zone=zone,
        workload=workload,
        endpoints=tuple(endpoint or ()),
        settings=None if options.settings is None else str(options.settings),
        data_directory=None if options.data_directory is None else str(options.data_directory),
        exports=tuple(export or ()),
        processes=processes,
    )
    is_output_used = any(EXPORTERS.get(text.partition(":")[0]).uses_standard_output for text in task.exports)

    def announce(queues: list[str], pids: list[int]) -> None:
        to = sys.stderr if is_output_used else sys.stdout
        if json:
            print(msgspec.json.encode({"queues": queues, "processes": pids}).decode(), file=to, flush=True)
            return
        how_many = "" if len(pids) == 1 else f" in {len(pids)} processes"
        print(f"Holdfast {holdfast.__version__} worker on {', '.join(queues)}{how_many}", file=to, flush=True)

    WorkerOptions(
        concurrency=concurrency, shutdown_timeout=shutdown_timeout
    )  # raises InvalidValue before anything is started
    if not targets:
        raise InvalidValue("no queue: name one as MODULE:QUEUE, such as jobs:mail")
    if processes > 1:
        from holdfast.cli.worker.supervisor import Supervisor

        Supervisor(task, processes, announce).run()
        return
    stop = StopRequest()
    with SignalHandlers(stop.request, lambda: os._exit(INTERRUPTED)):
        run_workers(task, stop, lambda queues: announce(queues, [os.getpid()]))
