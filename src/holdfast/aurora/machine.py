"""The state machine of a run, in Amazon States Language. Pure.

    ValidateInput -> GetClusterState -> AcquireLock
      -> dedicated reader -> failover -> old writer -> autoscaling readers, one at a time
      -> final verification -> completed, or again from GetClusterState

Each of the four parts in the middle is a group of states with the same shape: act, wait, check, evaluate; if it is not
ready: count, wait ten minutes, refresh what is known, and act or check again, up to five times. `_build_step` builds
it. Every end sends a notification and releases the lock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from holdfast.aurora.rules import CheckOutcome, ClusterState, NextStep, Role, Step

State: TypeAlias = dict[str, Any]
States: TypeAlias = dict[str, State]

FIRST_WAIT = 60
"""Seconds between a change of an instance and the first check."""
FAILOVER_WAIT = 120
"""Seconds between a failover and the first check."""
RETRY_WAIT = 600
"""Seconds between two checks of the same step."""
MAX_RETRIES = 5
"""Checks of a step after the first."""
WAIT_BEFORE_NEXT_ROUND = 60
"""Seconds before all steps are repeated."""
MAX_EXTRA_ROUNDS = 3
"""How often a run repeats all steps, if the final verification fails."""
TIMEOUT_SECONDS = 288_000
"""80 hours. The longest possible run takes 76: 14 readers, every retry, every step again after each, four rounds."""
LOCK_SECONDS = 216_000
"""60 hours. Every round takes at most 20, and renews the lock, so the lock outlives only an execution that has died."""
NOTIFICATION_ERRORS = {"Completed": "CompletedNotificationError", "Skipped": "SkippedNotificationError"}
"""The errors of executions that ended well, but whose notification could not be sent, by its kind."""
NOTIFICATION_ERROR = "NotificationError"
"""The error of an execution that failed, and whose notification could not be sent."""
MAX_REPLACEMENTS = 2
"""How often in a run the retries of a step begin again, because another instance has taken the place of its instance.
With more, the longest run could exceed the 25,000 events that the history of an execution may have."""
TASK_RETRIES = 3
"""Retries of a task whose function could not be invoked. With more, the history could become too long, too."""


class Function(StrEnum):
    """The Lambda functions."""

    UPDATE_SCHEDULE = "update-schedule"
    SCHEDULE_SCALING = "schedule-scaling"
    MODIFY_INSTANCE = "modify-instance"
    CHECK_INSTANCE_STATUS = "check-instance-status"
    GET_CLUSTER_INSTANCES = "get-cluster-instances"
    FAILOVER_CLUSTER = "failover-cluster"
    SEND_NOTIFICATION = "send-notification"


SERVICE_CALLS = ("lambda:invoke", "dynamodb:putItem", "dynamodb:deleteItem")
"""The calls that the state machine makes itself."""
TIMEOUTS: Mapping[Function, int] = {
    Function.UPDATE_SCHEDULE: 30,
    Function.SCHEDULE_SCALING: 900,
    Function.MODIFY_INSTANCE: 60,
    Function.CHECK_INSTANCE_STATUS: 30,
    Function.GET_CLUSTER_INSTANCES: 60,
    Function.FAILOVER_CLUSTER: 60,
    Function.SEND_NOTIFICATION: 30,
}
"""Seconds that each function may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources that a state machine uses: ARNs and a name, or placeholders for CloudFormation to replace."""

    functions: Mapping[Function, str]
    lock_table: str
    services: Mapping[str, str] = field(
        default_factory=lambda: {each: f"arn:aws:states:::{each}" for each in SERVICE_CALLS}
    )
    """The ARN of each of `SERVICE_CALLS`, which begins differently in China and GovCloud."""


def build_machine(resources: Resources) -> dict[str, Any]:
    """Return the definition of the state machine."""
    builder = _Builder(resources)
    states: States = {
        "ValidateInput": {
            "Type": "Pass",
            "Result": {"overall": {"retries": 0}, "replacements": {"retries": 0}, **_COUNTERS},
            "ResultPath": "$.counters",
            "Next": "CheckInput",
        },
        "CheckInput": _choice(
            {"And": [_is_text(name) for name in ("clusterIdentifier", "targetClass")], "Next": "GetClusterState"},
            default="InvalidInputError",
        ),
        "InvalidInputError": builder.notification("InvalidInputError", "ScalingFailed", on_error="NotificationFailed"),
        **_build_start(builder),
        **_build_step(
            builder,
            Step.DEDICATED_READER,
            act="ScaleDedicatedReader",
            instance="$.cluster.dedicatedReaderInstanceId",
            on_ready="RememberOldWriter",
        ),
        # Fixed before the failover, so that no refresh can confuse the old writer with the new one. Only if it is
        # deleted does a refresh replace it.
        "RememberOldWriter": {
            "Type": "Pass",
            "InputPath": "$.check.writerInstanceId",
            "ResultPath": "$.cluster.oldWriterInstanceId",
            "Next": "IsFailoverNeeded",
        },
        "IsFailoverNeeded": _choice(
            {"Variable": "$.check.writerHasClass", "BooleanEquals": True, "Next": "ScaleOldWriter"},
            default="FailoverToDedicatedReader",
        ),
        **_build_step(
            builder,
            Step.FAILOVER,
            act="FailoverToDedicatedReader",
            instance="$.cluster.dedicatedReaderInstanceId",
            on_ready="ScaleOldWriter",
        ),
        **_build_step(
            builder,
            Step.OLD_WRITER,
            act="ScaleOldWriter",
            instance="$.cluster.oldWriterInstanceId",
            on_ready="ProcessAutoScalingReaders",
        ),
        "ProcessAutoScalingReaders": _build_readers(builder),
        **_build_verification(builder),
        **_build_ends(builder),
    }
    return {
        "Comment": "Changes the instance class of an Aurora cluster with the interruption of one failover",
        "StartAt": "ValidateInput",
        "TimeoutSeconds": TIMEOUT_SECONDS,
        "States": states,
    }


def _build_start(builder: "_Builder") -> States:
    """Return the first states of a round: look at the cluster, take the lock, wait for a starting cluster."""
    return {
        "GetClusterState": builder.task(
            Function.GET_CLUSTER_INSTANCES, {"step": Step.START, "input.$": "$"}, "$.refresh", "UpdateClusterState"
        ),
        "UpdateClusterState": _update_cluster("AcquireLock"),
        "AcquireLock": {
            "Type": "Task",
            "Resource": builder.resources.services["dynamodb:putItem"],
            "Parameters": {
                "TableName": builder.resources.lock_table,
                "Item": {
                    "lockId": {"S.$": "$.clusterIdentifier"},
                    "executionArn": {"S.$": "$$.Execution.Id"},
                    "expiresAt": {"N.$": "$.refresh.lock.expiresAt"},
                },
                "ConditionExpression": "attribute_not_exists(lockId) OR expiresAt < :now OR executionArn = :own",
                "ExpressionAttributeValues": {
                    ":now": {"N.$": "$.refresh.lock.now"},
                    ":own": {"S.$": "$$.Execution.Id"},
                },
            },
            "ResultPath": None,
            "TimeoutSeconds": 60,
            "Retry": [{"ErrorEquals": [_CONFLICT], "MaxAttempts": 0}, _retry("States.ALL")],
            "Catch": [
                {
                    "ErrorEquals": [_CONFLICT],
                    "ResultPath": "$.error",
                    "Next": "SendSkippedNotification",
                },
                _catch("UnexpectedError"),
            ],
            "Next": "EvaluateClusterState",
        },
        "EvaluateClusterState": _choice(
            {"Variable": "$.refresh.state", "StringEquals": ClusterState.READY, "Next": "ScaleDedicatedReader"},
            {"Variable": "$.refresh.state", "StringEquals": ClusterState.REFUSED, "Next": "ClusterStateError"},
            _is_below("clusterStart", MAX_RETRIES, "IncrementClusterStartRetry"),
            default="ClusterStateError",
        ),
        "IncrementClusterStartRetry": _increment("clusterStart", "WaitForClusterStart"),
        "WaitForClusterStart": _wait(RETRY_WAIT, "GetClusterState"),
        "ClusterStateError": builder.notification("ClusterStateError", "ReleaseLockAfterError"),
    }


def _build_step(
    builder: "_Builder",
    step: Step,
    act: str,
    instance: str,
    on_ready: str,
    *,
    is_in_map: bool = False,
) -> States:
    """Return the states of one step: act, wait, check, evaluate, and the loop of retries."""
    counter = step[0].lower() + step[1:]
    is_failover = step is Step.FAILOVER
    # Retries belong to the instance that is modified, so those of a failover begin again with the next modification.
    reset = f"Reset{Step.DEDICATED_READER if is_failover else step}Retry"
    check, error = f"Check{step}Status", f"{step}StatusError"
    on_error = None if is_in_map else "UnexpectedError"
    target = {
        "clusterIdentifier.$": "$.clusterIdentifier",
        "instanceId.$": instance,
        "classes.$": "$.cluster.classes",
    }
    next_steps = {
        NextStep.SCALE: act,
        NextStep.FAIL_OVER: act if is_failover else "FailoverToDedicatedReader",
        NextStep.SCALE_DEDICATED_READER: "ScaleDedicatedReader",
        NextStep.COMPLETE: on_ready,
    }
    possible = {
        Step.DEDICATED_READER: (NextStep.SCALE,),
        Step.FAILOVER: (NextStep.FAIL_OVER, NextStep.SCALE_DEDICATED_READER),
        Step.OLD_WRITER: (NextStep.SCALE, NextStep.FAIL_OVER),
        Step.AUTOSCALING_READER: (NextStep.SCALE, NextStep.COMPLETE),
    }[step]
    states: States = {
        act: builder.task(
            Function.FAILOVER_CLUSTER if is_failover else Function.MODIFY_INSTANCE,
            target,
            "$.act",
            f"WaitFor{step}" if is_failover else f"Is{step}Done",
            on_error=on_error,
        ),
        f"Is{step}Done": _choice(
            {"Variable": "$.act.alreadyDone", "BooleanEquals": True, "Next": check}, default=f"WaitFor{step}"
        ),
        f"WaitFor{step}": _wait(FAILOVER_WAIT if is_failover else FIRST_WAIT, check),
        check: builder.task(
            Function.CHECK_INSTANCE_STATUS,
            {**target, "role": Role.WRITER if is_failover else Role.ANY},
            "$.check",
            f"Evaluate{step}Status",
            on_error=on_error,
        ),
        f"Evaluate{step}Status": _choice(
            {"Variable": "$.check.outcome", "StringEquals": CheckOutcome.READY, "Next": on_ready},
            {"Variable": "$.check.outcome", "StringEquals": CheckOutcome.FAILED, "Next": error},
            _is_below(counter, MAX_RETRIES, f"Increment{step}Retry"),
            default=error,
        ),
        f"Increment{step}Retry": _increment(counter, f"WaitFor{step}Retry"),
        f"WaitFor{step}Retry": _wait(RETRY_WAIT, f"Refresh{step}Info"),
        f"Refresh{step}Info": builder.task(
            Function.GET_CLUSTER_INSTANCES,
            {**target, "step": step, **({} if is_in_map else {"cluster.$": "$.cluster"})},
            "$.refresh",
            f"Update{step}Info",
            on_error=on_error,
        ),
        f"Update{step}Info": _pass(f"Choose{step}Step") if is_in_map else _update_cluster(f"Choose{step}Step"),
        f"Choose{step}Step": _choice(
            *(() if is_in_map else (_is_replaced(reset),)),
            *({"Variable": "$.refresh.nextStep", "StringEquals": each, "Next": next_steps[each]} for each in possible),
            default=check,
        ),
        error: builder.notification(error, "AutoScalingReaderFailed", on_error="AutoScalingReaderNotificationFailed")
        if is_in_map
        else builder.notification(error, "ReleaseLockAfterError"),
    }
    if not is_failover and not is_in_map:
        states[reset] = _reset(counter, act)
    if is_failover:
        del states[f"Is{step}Done"]
        # A refused failover is checked and, after a while, repeated.
        states[act]["Catch"] = [_catch(check, "$.act")]
    return states


def _build_readers(builder: "_Builder") -> State:
    """Return the Map over the other readers. Its items are fixed when it begins; later rounds find new readers."""
    states = _build_step(
        builder,
        Step.AUTOSCALING_READER,
        act="ScaleAutoScalingReader",
        instance="$.instanceId",
        on_ready="AutoScalingReaderComplete",
        is_in_map=True,
    )
    return {
        "Type": "Map",
        "ItemsPath": "$.cluster.autoScalingReaderInstanceIds",
        "MaxConcurrency": 1,
        "ItemSelector": {
            "instanceId.$": "$$.Map.Item.Value",
            "clusterIdentifier.$": "$.clusterIdentifier",
            "targetClass.$": "$.targetClass",
            "cluster": {"classes.$": "$.cluster.classes"},
            "counters": {"overall.$": "$.counters.overall", "autoScalingReader": {"retries": 0}},
        },
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "INLINE"},
            "StartAt": "ScaleAutoScalingReader",
            "States": {
                **states,
                "AutoScalingReaderComplete": {"Type": "Pass", "End": True},
                "AutoScalingReaderFailed": {
                    "Type": "Fail",
                    "Error": "AutoScalingReaderStatusError",
                    "Cause": "A reader did not become ready. See the notification, or `holdfast aurora status`.",
                },
                "AutoScalingReaderNotificationFailed": _notification_failed(),
            },
        },
        "ResultPath": None,
        "Catch": [
            {
                "ErrorEquals": ["AutoScalingReaderStatusError"],
                "ResultPath": "$.error",
                "Next": "ReleaseLockAfterError",
            },
            {
                "ErrorEquals": [NOTIFICATION_ERROR],
                "ResultPath": "$.error",
                "Next": "ReleaseLockAfterFailedNotification",
            },
            _catch("UnexpectedError"),
        ],
        "Next": "PrepareFinalVerification",
    }


def _build_verification(builder: "_Builder") -> States:
    """Return the states that check all instances at the end of a round, and begin another round if needed."""
    target = {"clusterIdentifier.$": "$.clusterIdentifier", "classes.$": "$.cluster.classes"}
    is_verified = [
        {"Variable": f"$.verification.{part}.isVerified", "BooleanEquals": True}
        for part in ("writerAndDedicatedReader", "otherReaders")
    ]
    return {
        "PrepareFinalVerification": {
            "Type": "Pass",
            "Result": {},
            "ResultPath": "$.final",
            "Next": "FinalVerification",
        },
        "FinalVerification": builder.task(
            Function.CHECK_INSTANCE_STATUS,
            {**target, "verify": "writerAndDedicatedReader"},
            "$.final.writerAndDedicatedReader",
            "FinalVerificationAutoScaling",
        ),
        "FinalVerificationAutoScaling": builder.task(
            Function.CHECK_INSTANCE_STATUS,
            {**target, "verify": "otherReaders"},
            "$.final.otherReaders",
            "EvaluateFinalVerification",
        ),
        "EvaluateFinalVerification": {
            "Type": "Pass",
            "Parameters": {
                "writerAndDedicatedReader.$": "$.final.writerAndDedicatedReader",
                "otherReaders.$": "$.final.otherReaders",
            },
            "ResultPath": "$.verification",
            "Next": "CheckFinalVerificationResult",
        },
        "CheckFinalVerificationResult": _choice(
            {"And": is_verified, "Next": "SendCompletionNotification"},
            _is_below("overall", MAX_EXTRA_ROUNDS, "IncrementOverallRetry"),
            default="OverallRetryError",
        ),
        "IncrementOverallRetry": {
            "Type": "Pass",
            "Parameters": {
                "overall": {"retries.$": "States.MathAdd($.counters.overall.retries, 1)"},
                "replacements.$": "$.counters.replacements",
                **_COUNTERS,
            },
            "ResultPath": "$.counters",
            "Next": "WaitBeforeRetry",
        },
        "WaitBeforeRetry": _wait(WAIT_BEFORE_NEXT_ROUND, "GetClusterState"),
        "OverallRetryError": builder.notification("OverallRetryError", "ReleaseLockAfterError"),
    }


def _build_ends(builder: "_Builder") -> States:
    """Return the states after the last decision: notify, release the lock, end."""
    return {
        "SendCompletionNotification": builder.notification(
            "Completed", "ReleaseLock", on_error="ReleaseLockAfterSuccess"
        ),
        "ReleaseLockAfterSuccess": builder.release("CompletionNotificationFailed"),
        "CompletionNotificationFailed": _notification_failed("Completed"),
        "ReleaseLock": builder.release("ScalingSucceeded"),
        "ScalingSucceeded": {"Type": "Succeed"},
        "ReleaseLockAfterFailedNotification": builder.release("NotificationFailed"),
        "NotificationFailed": _notification_failed(),
        "UnexpectedError": builder.notification("UnexpectedError", "ReleaseLockAfterError"),
        "ReleaseLockAfterError": builder.release("ScalingFailed"),
        "ScalingFailed": {
            "Type": "Fail",
            "Error": "ScalingError",
            "Cause": "Not all instances were changed. See the notification, or `holdfast aurora status`.",
        },
        "SendSkippedNotification": builder.notification(
            "Skipped", "ScalingSkipped", on_error="SkippedNotificationFailed"
        ),
        "SkippedNotificationFailed": _notification_failed("Skipped"),
        "ScalingSkipped": {"Type": "Succeed"},
    }


class _Builder:
    """Builds states that need resources."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def task(
        self,
        function: Function,
        payload: Mapping[str, Any],
        result: str,
        following: str,
        *,
        on_error: str | None = "UnexpectedError",
    ) -> State:
        """Return a state that invokes a function, and stores the fields that it returns at `result`."""
        state: State = {
            "Type": "Task",
            "Resource": self.resources.services["lambda:invoke"],
            "Parameters": {"FunctionName": self.resources.functions[function], "Payload": dict(payload)},
            "ResultSelector": {f"{field}.$": f"$.Payload.{field}" for field in RESULT_FIELDS[function]},
            "ResultPath": result,
            # The function's own timeout comes first, so that its log says where the time went.
            "TimeoutSeconds": TIMEOUTS[function] + 30,
            "Retry": [_retry(*_LAMBDA_ERRORS)],
        }
        if on_error is not None:
            state["Catch"] = [_catch(on_error)]
        return {**state, "Next": following}

    def notification(self, kind: str, following: str, *, on_error: str = "ReleaseLockAfterFailedNotification") -> State:
        """Return a state that sends a notification about the run."""
        payload = {"kind": kind, "execution.$": "$$.Execution.Id", "run.$": "$"}
        state = self.task(Function.SEND_NOTIFICATION, payload, "$.notification", following)
        return {**state, "Catch": [_catch(on_error, "$.notificationError")]}

    def release(self, following: str) -> State:
        """Return a state that releases the lock. A lock of another run stays; an unreleased one expires."""
        return {
            "Type": "Task",
            "Resource": self.resources.services["dynamodb:deleteItem"],
            "Parameters": {
                "TableName": self.resources.lock_table,
                "Key": {"lockId": {"S.$": "$.clusterIdentifier"}},
                "ConditionExpression": "executionArn = :own",
                "ExpressionAttributeValues": {":own": {"S.$": "$$.Execution.Id"}},
            },
            "ResultPath": None,
            "TimeoutSeconds": 60,
            "Retry": [{"ErrorEquals": [_CONFLICT], "MaxAttempts": 0}, _retry("States.ALL")],
            "Catch": [_catch(following, "$.lockError")],
            "Next": following,
        }


RESULT_FIELDS: Mapping[Function, tuple[str, ...]] = {
    Function.MODIFY_INSTANCE: ("alreadyDone", "reason"),
    Function.FAILOVER_CLUSTER: ("alreadyDone", "reason"),
    Function.CHECK_INSTANCE_STATUS: (
        *("outcome", "reason", "writerInstanceId", "writerHasClass"),
        *("isVerified", "problems", "instances"),
    ),
    Function.GET_CLUSTER_INSTANCES: ("cluster", "state", "reason", "nextStep", "isReplaced", "lock"),
    Function.SEND_NOTIFICATION: ("messageId",),
}
"""The fields that each function of the state machine returns, always all of them."""
_LAMBDA_ERRORS = (
    *("Lambda.ClientExecutionTimeoutException", "Lambda.ServiceException", "Lambda.AWSLambdaException"),
    *("Lambda.SdkClientException", "Lambda.TooManyRequestsException"),
    # The function has timed out, or died. It may have done its work: it looks first, so it can be called again.
    *("Lambda.Unknown", "Sandbox.Timedout", "States.Timeout"),
)
_CONFLICT = "DynamoDB.ConditionalCheckFailedException"
_COUNTERS: State = {name: {"retries": 0} for name in ("clusterStart", "dedicatedReader", "failover", "oldWriter")}
"""The counters of a new round."""


def _increment(counter: str, following: str) -> State:
    return {
        "Type": "Pass",
        "Parameters": {"retries.$": f"States.MathAdd($.counters.{counter}.retries, 1)"},
        "ResultPath": f"$.counters.{counter}",
        "Next": following,
    }


def _reset(counter: str, following: str) -> State:
    """Return a state that gives another instance all retries of a step."""
    others = {f"{name}.$": f"$.counters.{name}" for name in ("overall", *_COUNTERS) if name != counter}
    replacements = {"retries.$": "States.MathAdd($.counters.replacements.retries, 1)"}
    return {
        "Type": "Pass",
        "Parameters": {**others, counter: {"retries": 0}, "replacements": replacements},
        "ResultPath": "$.counters",
        "Next": following,
    }


def _is_replaced(following: str) -> State:
    """Return the choice for a step that goes on with another instance."""
    replacements = {"Variable": "$.counters.replacements.retries", "NumericLessThan": MAX_REPLACEMENTS}
    return {"And": [{"Variable": "$.refresh.isReplaced", "BooleanEquals": True}, replacements], "Next": following}


def _is_below(counter: str, limit: int, following: str) -> State:
    return {"Variable": f"$.counters.{counter}.retries", "NumericLessThan": limit, "Next": following}


def _is_text(name: str) -> State:
    variable = f"$.{name}"
    return {"And": [{"Variable": variable, "IsPresent": True}, {"Variable": variable, "IsString": True}]}


def _choice(*choices: State, default: str) -> State:
    return {"Type": "Choice", "Choices": list(choices), "Default": default}


def _wait(seconds: int, following: str) -> State:
    return {"Type": "Wait", "Seconds": seconds, "Next": following}


def _pass(following: str) -> State:
    return {"Type": "Pass", "Next": following}


def _update_cluster(following: str) -> State:
    return {"Type": "Pass", "InputPath": "$.refresh.cluster", "ResultPath": "$.cluster", "Next": following}


def _notification_failed(kind: str = "") -> State:
    """Return the end of a run that could not tell how it ended. The rule for ended runs sends the notification."""
    ends = {"Completed": "All instances were changed", "Skipped": "Another run was in progress"}
    return {
        "Type": "Fail",
        "Error": NOTIFICATION_ERRORS.get(kind, NOTIFICATION_ERROR),
        "Cause": f"{ends.get(kind, 'The run failed')}, but the notification about it could not be sent.",
    }


def _catch(following: str, result: str = "$.error") -> State:
    return {"ErrorEquals": ["States.ALL"], "ResultPath": result, "Next": following}


def _retry(*errors: str) -> State:
    return {"ErrorEquals": list(errors), "IntervalSeconds": 2, "MaxAttempts": TASK_RETRIES, "BackoffRate": 2.0}
