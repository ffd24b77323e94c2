"""`holdfast aurora template`, `package`, `deploy` and `remove`: what runs need in AWS."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from holdfast._clock import SystemClock
from holdfast.aurora.cluster import AUTOSCALING_PATTERN
from holdfast.aurora.names import Names, check_prefix
from holdfast.aurora.template import Network, Scheduler, TemplateOptions, build_template
from holdfast.cli.output import (
    Json,
    SettingsFile,
    confirm,
    create_file,
    print_json,
    print_note,
    print_result,
    print_table,
    require_answer,
)
from holdfast.compose import open_aws_session
from holdfast.config import load

if TYPE_CHECKING:
    from holdfast.aurora.deploy import EventListener, StackEvent

Prefix = Annotated[
    str, Parameter(help="Prefix of the stack and of all its resources. The stack is called <prefix>-scaling.")
]
Region = Annotated[str | None, Parameter(help="The region. Overrides aws.region.")]
Yes = Annotated[bool, Parameter(help="Do not ask for confirmation.")]
Output = Annotated[Path | None, Parameter(help="File to write. Default: standard output.")]
Force = Annotated[bool, Parameter(help="Overwrite an existing file of --output.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """The options that select what is deployed."""

    prefix: Prefix
    network: Annotated[
        Literal["new", "existing", "none"],
        Parameter(
            help="Where the Lambda functions run: in a new VPC, in an existing VPC (give --subnet), or outside any VPC."
        ),
    ]
    subnet: Annotated[list[str] | None, Parameter(help="A subnet of an existing VPC. May be repeated.")] = None
    security_group: Annotated[
        list[str] | None, Parameter(help="A security group of an existing VPC. May be repeated.")
    ] = None
    scheduler: Annotated[
        Literal["rule", "scheduler"],
        Parameter(help="rule: one schedule, in Japanese time. scheduler: several, each with its time zone."),
    ] = "rule"
    database: Annotated[
        list[str] | None,
        Parameter(
            help="Id of clusters and instances that runs may change; * at its end matches any text. May be repeated. "
            "Default: <prefix>-*."
        ),
    ] = None
    email: Annotated[
        str | None, Parameter(help="Address for notifications. AWS first sends a mail that its owner must confirm.")
    ] = None
    autoscaling_pattern: Annotated[
        str, Parameter(help="Regular expression. Readers whose ids match it also count as created by Auto Scaling.")
    ] = AUTOSCALING_PATTERN

    def build(self) -> TemplateOptions:
        check_prefix(self.prefix, "--prefix")
        return TemplateOptions(
            prefix=self.prefix,
            network=Network(self.network),
            subnets=tuple(self.subnet or ()),
            security_groups=tuple(self.security_group or ()),
            scheduler=Scheduler(self.scheduler),
            databases=tuple(self.database or ()),
            email=self.email,
            autoscaling_pattern=self.autoscaling_pattern,
        )


def template(stack: StackOptions, *, output: Output = None, force: Force = False) -> None:
    """Write the CloudFormation template, for deploying it with other tools. Does not call AWS.

    Its parameter CodeBucket is a bucket with the zip of `holdfast aurora package`.
    Example: holdfast aurora template --prefix shop --network none
    """
    from holdfast.aurora.package import build_package

    options, key = stack.build(), build_package().get_key(stack.prefix)
    built = build_template(options, key)
    if output is None:
        print_json(built)
        return
    with create_file(output, force=force) as file:
        file.write(msgspec.json.format(msgspec.json.encode(built), indent=2) + b"\n")
    print_note(
        f"{output} expects the zip of `holdfast aurora package` in CodeBucket, with the key {key}", as_json=False
    )


def package(
    *,
    prefix: Prefix,
    output: Annotated[Path, Parameter(help="File to write.")],
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the zip file with the code of the Lambda functions. Every build of the same version gives the same file.

    Upload it to your bucket with the printed key. The template of the same prefix refers to that key.
    Example: holdfast aurora package --prefix shop --output functions.zip
    """
    from holdfast.aurora.package import build_package

    check_prefix(prefix, "--prefix")
    built = build_package()
    with create_file(output, force=force) as file:
        file.write(built.content)
    key = built.get_key(prefix)
    result = {"file": str(output), "bytes": len(built.content), "key": key}
    print_result(result, f"{output}: {len(built.content)} bytes, key {key}", as_json=json)


def deploy(
    stack: StackOptions,
    *,
    bucket: Annotated[
        str | None,
        Parameter(help="A bucket of the same region for the code. Default: holdfast-aurora-<account>-<region>."),
    ] = None,
    yes: Yes = False,
    region: Region = None,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Create or update the stack: show what would change, ask, and change it.

    Example: holdfast aurora deploy --prefix shop --network none
    """
    options = stack.build()
    require_answer(yes=yes)
    with open_aws_session(load(settings, options={("aws", "region"): region}).settings) as session:
        from holdfast.aurora.deploy import Deployment  # after the session, which says what to install without boto3

        deployment = Deployment(session, SystemClock())
        change_set = deployment.prepare(options, bucket)
        result = {"stack": change_set.stack, "changes": [asdict(each) for each in change_set.changes]}
        if not json:
            rows = [(each.action, each.resource, each.kind) for each in change_set.changes]
            print_table(("CHANGE", "RESOURCE", "TYPE"), rows)
        question = f"Make these {len(change_set.changes)} changes to stack {change_set.stack}?"
        if not change_set.changes or not confirm(question, yes=yes):
            deployment.discard(change_set)
            print_result({**result, "deployed": False, "outputs": {}}, "Nothing was changed.", as_json=json)
            return
        outputs = deployment.execute(change_set, _choose_listener(as_json=json))
        text = "\n".join(["Deployed.", *(f"{name}: {value}" for name, value in sorted(outputs.items()))])
        print_result({**result, "deployed": True, "outputs": outputs}, text, as_json=json)


def remove(
    *,
    prefix: Prefix,
    force: Annotated[bool, Parameter(help="Stop a run that is in progress.")] = False,
    yes: Yes = False,
    region: Region = None,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Delete the stack with all its resources. Clusters stay as they are, and so does the bucket with the code.

    Example: holdfast aurora remove --prefix shop
    """
    check_prefix(prefix, "--prefix")
    require_answer(yes=yes)
    stack = Names(prefix).stack
    with open_aws_session(load(settings, options={("aws", "region"): region}).settings) as session:
        from holdfast.aurora.deploy import Deployment

        is_confirmed = confirm(f"Delete stack {stack} with all its resources?", yes=yes)
        if is_confirmed:
            Deployment(session, SystemClock()).remove(prefix, _choose_listener(as_json=json), force=force)
    text = f"Stack {stack} was deleted." if is_confirmed else "Nothing was changed."
    print_result({"stack": stack, "removed": is_confirmed}, text, as_json=json)


def _choose_listener(*, as_json: bool) -> "EventListener":
    """Return a function that prints each event; with --json, one that prints nothing."""
    return (lambda _: None) if as_json else _print_event


def _print_event(event: "StackEvent") -> None:
    reason = f": {event.reason}" if event.reason else ""
    print_note(f"{event.status} {event.resource}{reason}", as_json=False)
