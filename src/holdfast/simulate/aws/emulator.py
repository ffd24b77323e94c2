"""moto in this process, in virtual time: Step Functions, with functions that are called directly, DynamoDB and SNS.

moto's interpreter runs the definition. Waits and pauses between retries advance the virtual clock.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

from holdfast._errors import MissingExtra

try:
    from moto import mock_aws
    from moto.awslambda.exceptions import LambdaClientError
    from moto.awslambda_simple.models import LambdaSimpleBackend
    from moto.core.config import DefaultConfig
    from moto.sns.exceptions import SNSException
    from moto.sns.models import Topic
    from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
    from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager
    from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser
    from moto.stepfunctions.parser.asl.utils import boto_client, json_path
    from moto.stepfunctions.parser.backend.execution_worker import ExecutionWorker
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends
    from moto.stepfunctions.parser.utils import TMP_THREADS
except ImportError as error:
    raise MissingExtra("a simulation of AWS", "simulate") from error

from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.simulate.aws.lifecycle import PublishedMessage, StateVisit
from holdfast.simulate.aws.rds import REGION, Rds

ACCOUNT = "123456789012"
_CONFIG: DefaultConfig = {"lambda": {"use_docker": False}, "stepfunctions": {"execute_state_machine": True}}


class FunctionThrottled(Exception):
    """Raise it in `invoke` to simulate a TooManyRequestsException of Lambda."""


class StopReason(StrEnum):
    """Why an execution ends without running another state."""

    ABORTED = "ABORTED"
    TIMED_OUT = "TIMED_OUT"


Invoke = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class Emulator:
    """AWS in this process. One at a time: moto's state belongs to the process."""

    def __init__(self, rds: Rds, invoke: Invoke) -> None:
        self.clock = rds.timeline.clock
        self.published: list[PublishedMessage] = []
        self.publications_to_fail = 0
        """The number of messages that SNS will still refuse."""
        self._rds = rds
        self._invoke = invoke
        self._clients: dict[str, Any] = {}
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._stopped: dict[str, StopReason] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(mock_aws(config=_CONFIG))
            stack.enter_context(self._rds.install())
            stack.enter_context(_quiet_logs("moto", "holdfast.aurora"))
            emulator, sleep = self, self.clock.sleep
            original_client = vars(boto_client)["boto3"].client
            original_publish = Topic.publish

            def wait(_function: WaitFunction, env: Any, wait_seconds: float) -> None:
                emulator.wait(wait_seconds, env.is_running)

            def invoke(_backend: Any, name: str, _qualifier: Any, body: Any, _headers: Any, reply: Any) -> bytes:
                return emulator._call(name, body, reply)

            def publish(topic: Topic, message: str, subject: str | None = None, *rest: Any, **options: Any) -> str:
                if emulator.publications_to_fail:
                    emulator.publications_to_fail -= 1
                    raise SNSException("AuthorizationError", "Simulated: the key of the topic is disabled.")
                emulator.published.append(PublishedMessage(emulator.clock.now, subject or "", message))
                return original_publish(topic, message, subject, *rest, **options)

            def client(*, service_name: str, **options: Any) -> Any:
                if service_name not in emulator._clients:
                    emulator._clients[service_name] = original_client(service_name=service_name, **options)
                return emulator._clients[service_name]

            for target, name, value in (
                (WaitFunction, "_wait_interval", wait),
                (retrier_decl, "time", SimpleNamespace(sleep=sleep)),
                (EventManager, "_get_current_timestamp", staticmethod(self._now)),
                (ExecutionWorker, "start", ExecutionWorker._execution_logic),  # noqa: SLF001 - not in the background
                (AmazonStateLanguageParser, "parse", staticmethod(_parse)),  # takes 2 s
                (json_path, "parse", _parse_path),
                (boto_client, "boto3", SimpleNamespace(client=client)),  # takes longer than the call
                (LambdaSimpleBackend, "invoke", invoke),
                (Topic, "publish", publish),
            ):
                stack.enter_context(patch.object(target, name, value))
            # botocore pauses for a random time: with a fixed one, a run is reproducible.
            pause = SimpleNamespace(sleep=lambda _seconds: sleep(1.0))
            stack.enter_context(patch("botocore.endpoint.time", pause))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        TMP_THREADS.clear()

    def open_session(self, max_attempts: int) -> AwsSession:
        """Return a session with this AWS. The caller closes it."""
        return AwsSession(AwsOptions(region=REGION, max_attempts=max_attempts))

    def plan(self, at: float, action: Callable[[], object]) -> None:
        """Call `action` at a time, or in the first wait of an execution after that time."""
        heappush(self._planned, (at, len(self._planned), action))

    def cancel_planned(self) -> None:
        """Cancel all planned actions."""
        self._planned.clear()

    def stop_execution(self, arn: str, reason: StopReason) -> None:
        """Stop a running execution, as StopExecution does, or as its timeout does."""
        execution = self._executions.describe_execution(arn)
        if execution.status == "RUNNING":
            execution.stop(stop_date=self._now(), error=None, cause=None)
            self._stopped[arn] = reason

    def list_executions(self) -> list[str]:
        """Return the ARNs of all executions, in the order of their start."""
        return [each.exec_arn for machine in self._executions.state_machines for each in machine.executions]

    def describe(self, arn: str) -> Mapping[str, Any]:
        """Return an execution as DescribeExecution does."""
        described = dict(self._executions.describe_execution(arn).to_describe_output())
        if arn in self._stopped:  # in a Map, moto runs no further state, but reports an error of its own
            return {**described, "status": self._stopped[arn].value, "error": None, "cause": None}
        return {**described, "status": described["status"].value}

    def get_events(self, arn: str) -> Sequence[Mapping[str, Any]]:
        """Return the history of an execution."""
        return list(self._executions.get_execution_history(arn)["events"])

    def get_path(self, arn: str) -> tuple[StateVisit, ...]:
        """Return the states that an execution has entered, in their order."""
        entered = [each for each in self.get_events(arn) if "stateEnteredEventDetails" in each]
        return tuple(
            StateVisit(datetime.fromisoformat(each["timestamp"]).timestamp(), each["stateEnteredEventDetails"]["name"])
            for each in entered
        )

    @property
    def _executions(self) -> Any:
        return stepfunctions_parser_backends[ACCOUNT][REGION]

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now, UTC)

    def wait(self, seconds: float, is_running: Callable[[], bool] = lambda: True) -> None:
        """Let virtual time pass, and do what was planned meanwhile, until `is_running` is false."""
        end = self.clock.now + seconds
        while self._planned and self._planned[0][0] <= end:
            at, _, action = heappop(self._planned)
            self._move(at)
            action()
            if not is_running():
                return
        self._move(end)

    def _move(self, at: float) -> None:
        self.clock.now = max(self.clock.now, at)
        self._rds.advance()

    def _call(self, name: str, body: Any, reply: dict[str, str]) -> bytes:
        try:
            result: Mapping[str, Any] = self._invoke(name, json.loads(body))
        except FunctionThrottled as error:
            raise LambdaClientError("TooManyRequestsException", "Simulated: Rate Exceeded.") from error
        except Exception as error:  # noqa: BLE001 - Lambda reports every error of a function to its caller
            reply["x-amz-function-error"] = "Unhandled"
            result = {"errorType": type(error).__name__, "errorMessage": str(error)}
        return json.dumps(result).encode()


_parse = cache(AmazonStateLanguageParser.parse)
_parse_path = cache(vars(json_path)["parse"])


@contextmanager
def _quiet_logs(*names: str) -> Iterator[None]:
    """Hide warnings about failures, which the simulation causes on purpose."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
