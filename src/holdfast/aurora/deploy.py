"""Deploy the stack by a change set, which can be shown before it is executed, and remove the stack."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from holdfast._clock import Clock
from holdfast._errors import Conflict, EngineError, NotFound
from holdfast.aurora.names import Names
from holdfast.aurora.package import build_package
from holdfast.aurora.template import TemplateOptions, build_template
from holdfast.engines.aws import AwsSession

POLL_SECONDS = 3.0
"""Seconds between two reads of a change set or a stack. Most stacks take one to five minutes."""
_ACTIONS = {"Add": "add", "Modify": "change", "Remove": "remove", "Import": "import", "Dynamic": "change"}
_NOT_FOUND = "does not exist"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a resource."""

    action: str
    """`add`, `change`, `replace` or `remove`."""
    resource: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """The changes that a deployment would make."""

    id: str
    stack: str
    is_new: bool
    """Whether the stack does not exist yet."""
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class StackEvent:
    """A step in the change of a stack."""

    resource: str
    status: str
    reason: str


EventListener = Callable[[StackEvent], None]


class Deployment:
    """Creates, changes and deletes stacks in one account and region."""

    def __init__(self, session: AwsSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._stacks = session.client("cloudformation")

    def prepare(self, options: TemplateOptions, bucket: str | None) -> ChangeSet:
        """Upload code and template, and create a change set. Without a bucket, use one of our own."""
        stack, package = Names(options.prefix).stack, build_package()
        with _translate_refusals(stack):
            is_new = self._check_stack(stack)
            code_key = package.get_key(options.prefix)
            template = json.dumps(build_template(options, code_key), separators=(",", ":")).encode()
            owner = {}
            if bucket is None:
                account = self._session.client("sts").get_caller_identity()["Account"]
                owner["ExpectedBucketOwner"] = account  # so that nobody else's bucket of this name gets our code
                bucket = self._create_bucket(account)
            template_key = code_key.removesuffix("zip") + "json"
            s3 = self._session.client("s3")
            for key, content in ((code_key, package.content), (template_key, template)):
                s3.put_object(Bucket=bucket, Key=key, Body=content, **owner)
            parameters = {"CodeBucket": bucket}
            if options.subnets:
                parameters["Subnets"] = ",".join(options.subnets)
                parameters["SecurityGroups"] = ",".join(options.security_groups)
            created = self._stacks.create_change_set(
                StackName=stack,
                ChangeSetName=f"holdfast-{uuid4().hex}",
                ChangeSetType="CREATE" if is_new else "UPDATE",
                # Templates of more than 51,200 bytes cannot be sent with the request.
                TemplateURL=f"{s3.meta.endpoint_url}/{bucket}/{template_key}",
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
                Capabilities=["CAPABILITY_NAMED_IAM"],
            )
            changes = self._wait_for_change_set(created["Id"])
        return ChangeSet(id=created["Id"], stack=stack, is_new=is_new, changes=changes)

    def discard(self, change_set: ChangeSet) -> None:
        """Delete a change set, and the empty stack that was created for it."""
        with _translate_refusals(change_set.stack):
            self._stacks.delete_change_set(ChangeSetName=change_set.id)
            if change_set.is_new:
                self._stacks.delete_stack(StackName=change_set.stack)

    def execute(self, change_set: ChangeSet, listener: EventListener) -> Mapping[str, str]:
        """Make the changes. Return the outputs of the stack, or raise EngineError if AWS rolled the changes back."""
        with _translate_refusals(change_set.stack):
            begin = partial(self._stacks.execute_change_set, ChangeSetName=change_set.id)
            stack = self._change_stack(change_set.stack, begin, listener)
        return {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}

    def remove(self, prefix: str, listener: EventListener, *, force: bool = False) -> None:
        """Delete the stack. Raise Conflict while a run is in progress; with `force`, stop the run first."""
        name = Names(prefix).stack
        with _translate_refusals(name):
            stack = self._find_stack(name)
            if stack is None:
                raise NotFound(f"there is no stack {name} in this region: check --prefix and the region")
            self._end_runs(name, force=force)
            begin = partial(self._stacks.delete_stack, StackName=stack["StackId"])
            self._change_stack(stack["StackId"], begin, listener)

    def _find_stack(self, name: str) -> dict[str, Any] | None:
        try:
            stack: dict[str, Any] = self._stacks.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if _NOT_FOUND in str(error):
                return None
            raise
        return stack

    def _check_stack(self, name: str) -> bool:
        """Return whether the stack has to be created. Raise Conflict if it cannot be changed now."""
        stack = self._find_stack(name)
        status = stack["StackStatus"] if stack else "REVIEW_IN_PROGRESS"
        if status == "REVIEW_IN_PROGRESS":  # an earlier change set was not executed
            return True
        if status.endswith("_IN_PROGRESS"):
            raise Conflict(f"stack {name} is being changed ({status}): wait until that has ended")
        if status in {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED", "CREATE_FAILED"}:
            raise Conflict(f"stack {name} is {status} and cannot be updated: run `holdfast aurora remove` first")
        return False

    def _create_bucket(self, account: str) -> str:
        """Return our own bucket of this account and region. Create it if it does not exist."""
        s3 = self._session.client("s3")
        region = s3.meta.region_name
        name = f"holdfast-aurora-{account}-{region}"
        try:
            s3.head_bucket(Bucket=name, ExpectedBucketOwner=account)
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"404", "NoSuchBucket"}:
                raise
            place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            s3.create_bucket(Bucket=name, **place)
        return name

    def _wait_for_change_set(self, identifier: str) -> tuple[Change, ...]:
        while True:
            described = self._stacks.describe_change_set(ChangeSetName=identifier)
            if described["Status"] == "CREATE_COMPLETE":
                found = self._session.paginate(self._stacks, "describe_change_set", ChangeSetName=identifier)
                return tuple(_parse_change(each["ResourceChange"]) for each in found)
            if described["Status"] == "FAILED":
                reason = described.get("StatusReason", "")
                if "didn't contain changes" in reason or "No updates" in reason:
                    return ()
                raise EngineError(f"AWS cannot create the change set: {reason}")
            self._clock.sleep(POLL_SECONDS)

    def _change_stack(self, name: str, begin: Callable[[], object], listener: EventListener) -> dict[str, Any]:
        """Begin a change, and pass its events to `listener` until it ends. Raise EngineError if it failed."""
        seen: set[str] = set()
        list(self._read_new_events(name, seen))
        begin()
        reason, has_begun = "", False
        while True:
            stack = self._find_stack(name)
            events = [] if stack is None else list(self._read_new_events(name, seen))
            for event in reversed(events):
                listener(event)
                # The first failure is the cause; those after it are resources that were cancelled.
                reason = reason or (f"{event.resource}: {event.reason}" if event.status.endswith("_FAILED") else "")
            status = stack["StackStatus"] if stack else "DELETE_COMPLETE"
            # Until an event was seen, this may be the status of before.
            if (has_begun or stack is None) and not status.endswith("_IN_PROGRESS"):
                if status in {"CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE"}:
                    return stack or {}
                raise EngineError(f"changing stack {name} failed ({status}): {reason or 'see its events'}")
            has_begun = has_begun or bool(events)
            self._clock.sleep(POLL_SECONDS)

    def _read_new_events(self, name: str, seen: set[str]) -> Iterator[StackEvent]:
        """Yield the events that are not in `seen`, newest first, and add them to it."""
        for event in self._session.paginate(self._stacks, "describe_stack_events", StackName=name):
            if event["EventId"] in seen:
                return
            seen.add(event["EventId"])
            reason = event.get("ResourceStatusReason", "")
            yield StackEvent(event["LogicalResourceId"], event["ResourceStatus"], reason)

    def _end_runs(self, stack: str, *, force: bool) -> None:
        try:
            found = self._stacks.describe_stack_resource(StackName=stack, LogicalResourceId="StateMachine")
            machine = found["StackResourceDetail"].get("PhysicalResourceId", "")
            running = {"stateMachineArn": machine, "statusFilter": "RUNNING"}
            runs = list(self._session.paginate("stepfunctions", "list_executions", **running)) if machine else []
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"ValidationError", "StateMachineDoesNotExist"}:
                raise
            return  # the stack could not be created, and has no state machine
        if runs and not force:
            raise Conflict(f"run {runs[0]['name']} is in progress: wait until it ends, or stop it with --force")
        for run in runs:
            self._session.client("stepfunctions").stop_execution(
                executionArn=run["executionArn"], cause="the stack is being removed"
            )


def _parse_change(change: Mapping[str, Any]) -> Change:
    is_replaced = change.get("Replacement") in {"True", "Conditional"}
    action = "replace" if change["Action"] == "Modify" and is_replaced else _ACTIONS[change["Action"]]
    return Change(action, change["LogicalResourceId"], change["ResourceType"])


@contextmanager
def _translate_refusals(stack: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise EngineError(f"AWS refused to change stack {stack}: {error}") from error
