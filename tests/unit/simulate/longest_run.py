"""Functions that lead the state machine along its longest path: every retry, and every step again after each."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.aurora.machine import MAX_REPLACEMENTS, MAX_RETRIES, RESULT_FIELDS, TASK_RETRIES, Function
from holdfast.aurora.rules import CheckOutcome, ClusterState, NextStep, Role, Step
from holdfast.simulate.aws.emulator import FunctionThrottled

Event = Mapping[str, Any]


class LongestRun:
    """Answers as long as possible with "not yet". With `retries`, every call of a function needs all its attempts."""

    def __init__(self, readers: int, *, retries: bool) -> None:
        self.readers = [f"reader-{number}" for number in range(readers)]
        self.calls = 0
        self._failed_attempts = 0 if retries else None
        self._used: Counter[str] = Counter()
        self._replacements = 0

    def functions(self) -> dict[Function, Any]:
        answers = {
            Function.MODIFY_INSTANCE: lambda _: {"alreadyDone": False},
            Function.FAILOVER_CLUSTER: lambda _: {"alreadyDone": False},
            Function.CHECK_INSTANCE_STATUS: self._check,
            Function.GET_CLUSTER_INSTANCES: self._get,
            Function.SEND_NOTIFICATION: lambda _: {},
        }
        return {function: self._wrap(function, answer) for function, answer in answers.items()}

    def _wrap(self, function: Function, answer: Any) -> Any:
        def call(event: Event) -> Mapping[str, Any]:
            if self._failed_attempts is not None and self._failed_attempts < TASK_RETRIES:
                self._failed_attempts += 1
                raise FunctionThrottled
            self._failed_attempts = None if self._failed_attempts is None else 0
            self.calls += 1
            return {**dict.fromkeys(RESULT_FIELDS[function], ""), **answer(event)}

        return call

    def _check(self, event: Event) -> Mapping[str, Any]:
        if "verify" in event:
            self._used.clear()  # the next round
            return {"isVerified": False, "problems": [], "instances": []}
        step = event["role"] + event["instanceId"]
        return {
            "outcome": CheckOutcome.RETRY if self._may_retry(step) else CheckOutcome.READY,
            "writerInstanceId": "writer",
            "writerHasClass": False,
        }

    def _get(self, event: Event) -> Mapping[str, Any]:
        step = Step(event["step"])
        is_starting = step is Step.START and self._may_retry(step)
        following = {
            Step.FAILOVER: NextStep.SCALE_DEDICATED_READER,
            Step.OLD_WRITER: NextStep.FAIL_OVER,
        }
        roles = {
            "writerInstanceId": "writer",
            "dedicatedReaderInstanceId": "dedicated",
            "oldWriterInstanceId": "writer",
            "autoScalingReaderInstanceIds": self.readers,
            "classes": ["db.t4g.medium"],
        }
        return {
            "isReplaced": step is Step.OLD_WRITER and self._may_replace("writer"),
            "cluster": roles,
            "state": ClusterState.STARTING if is_starting else ClusterState.READY,
            "nextStep": following.get(step, NextStep.SCALE),
            "lock": {"now": "0", "expiresAt": "216000"},
        }

    def _may_replace(self, instance: str) -> bool:
        """Replace the old writer after its last retry. Each of its retries repeats the failover, so this is longest."""
        check = Role.ANY + instance
        if self._used[check] < MAX_RETRIES or self._replacements == MAX_REPLACEMENTS:
            return False
        self._replacements += 1
        self._used[check] = 0
        return True

    def _may_retry(self, step: str) -> bool:
        self._used[step] += 1
        return self._used[step] <= MAX_RETRIES
