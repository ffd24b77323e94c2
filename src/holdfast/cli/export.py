"""`holdfast export`: CloudFormation templates for what makes DNS leave a zone. Nothing is deployed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import App, Parameter

from holdfast._errors import InvalidValue
from holdfast._names import parse_zone
from holdfast._types import Zone
from holdfast.cli.commands import EXIT_CODES_HELP
from holdfast.cli.output import SettingsFile, create_file, print_json
from holdfast.compose import open_aws_session
from holdfast.config import load
from holdfast.status.export import (
    BucketOptions,
    CheckTiming,
    EndpointCheck,
    ExistingHealthCheck,
    GatewayOptions,
    NamedZone,
    ObjectCheck,
    RecordOptions,
    RoutingControlCheck,
    StatusBucket,
    build_bucket_template,
    build_gateway_template,
    build_record_template,
)
from holdfast.status.export.checks import Check

app = App(
    name="export",
    help="Write CloudFormation templates for leaving a zone by DNS.\n\n"
    "Example: holdfast export status-endpoint --kind s3 --output endpoint.json",
    help_epilogue=EXIT_CODES_HELP,
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """The options that say where a template goes."""

    output: Annotated[
        Path | None, Parameter(help="A file for the template; without it, standard output. None is overwritten.")
    ] = None
    force: Annotated[bool, Parameter(help="Overwrite the file of --output.")] = False

    def write(self, template: dict[str, Any]) -> None:
        """Write the template."""
        if self.output is None:
            _refuse({"--force": self.force}, "standard output")
            print_json(template)
            return
        text = msgspec.json.format(msgspec.json.encode(template), indent=2) + b"\n"
        with create_file(self.output, force=self.force) as file:
            file.write(text)


PRINTED = TemplateOptions()
_TIMING, _GATEWAY = CheckTiming(), GatewayOptions()


@app.command
def route53(
    *,
    record: Annotated[str, Parameter(help="The name that clients look up, such as www.example.com.")],
    hosted_zone_id: Annotated[str | None, Parameter(help="The hosted zone of the record.")] = None,
    hosted_zone_name: Annotated[str | None, Parameter(help="Its name, to see that the record belongs there.")] = None,
    balancer: Annotated[str | None, Parameter(help="The DNS name of the load balancer.")] = None,
    balancer_zone_id: Annotated[str | None, Parameter(help="The canonical hosted zone id of the balancer.")] = None,
    zone: Annotated[
        list[str] | None, Parameter(help="AZ-ID and name in this account, use1-az1=us-east-1b. For each zone.")
    ] = None,
    discover: Annotated[
        bool, Parameter(help="Ask EC2 for the names of the zones of --zone, or of all there are.")
    ] = False,
    region: Annotated[
        str | None, Parameter(help="Where --discover asks. Instead of aws.region of the settings.")
    ] = None,
    endpoint: Annotated[
        list[str] | None, Parameter(help="Check a status endpoint, https://host. Several decide by quorum.")
    ] = None,
    bucket: Annotated[
        list[str] | None,
        Parameter(help="Check the objects of a bucket; NAME=REGION if it is not in the zones' region."),
    ] = None,
    prefix: Annotated[str, Parameter(help="Folders of the objects in --bucket, such as status/.")] = "",
    routing_control: Annotated[
        list[str] | None, Parameter(help="Follow an ARC routing control: AZ-ID=ARN. For each zone.")
    ] = None,
    health_check: Annotated[
        list[str] | None, Parameter(help="Use a health check, of another account perhaps: AZ-ID=ID. For each zone.")
    ] = None,
    workload: Annotated[
        str | None, Parameter(help="Leave zones that are out for it, besides those out for all.")
    ] = None,
    quorum: Annotated[
        int | None, Parameter(help="How many of --endpoint or --bucket must say out; without it, a majority.")
    ] = None,
    interval: Annotated[Literal[10, 30], Parameter(help="Seconds between checks.")] = _TIMING.interval,
    failure_threshold: Annotated[
        int, Parameter(help="Checks in a row with the same result before it counts.")
    ] = _TIMING.failure_threshold,
    target: TemplateOptions = PRINTED,
    settings: SettingsFile = None,
) -> None:
    """Write weighted alias records on the zonal names of a load balancer, each with a health check.

    The check is of --endpoint, --bucket, --routing-control or --health-check.
    What is not said of the hosted zone and the balancer becomes a parameter.
    Example: holdfast export route53 --record a.example.com --discover --bucket out
    """
    zones = _zones(zone or (), discover=discover, region=region, settings=settings)
    timing = CheckTiming(interval=interval, failure_threshold=failure_threshold)
    choices: list[Check] = []
    if endpoint:
        choices.append(EndpointCheck(endpoints=tuple(endpoint), workload=workload, quorum=quorum, timing=timing))
    if bucket:
        home = zones[0].region if zones else ""
        buckets = tuple(
            StatusBucket(name, region_given or home)
            for name, _, region_given in (text.partition("=") for text in bucket)
        )
        choices.append(ObjectCheck(buckets=buckets, prefix=prefix, workload=workload, quorum=quorum, timing=timing))
    if routing_control:
        choices.append(RoutingControlCheck(arns=_by_zone("--routing-control", routing_control)))
    if health_check:
        choices.append(ExistingHealthCheck(ids=_by_zone("--health-check", health_check)))
    if len(choices) != 1:
        raise InvalidValue("expected one of --endpoint, --bucket, --routing-control and --health-check, and only one")
    is_asked = bool(endpoint or bucket)
    _refuse(
        {
            "--prefix": prefix and not bucket,
            "--workload": workload is not None and not is_asked,
            "--quorum": quorum is not None and not is_asked,
            "--interval": timing.interval != _TIMING.interval and not is_asked,
            "--failure-threshold": timing.failure_threshold != _TIMING.failure_threshold and not is_asked,
        },
        "this kind of check",
    )
    options = RecordOptions(
        record=record,
        zones=zones,
        check=choices[0],
        hosted_zone_id=hosted_zone_id,
        hosted_zone_name=hosted_zone_name,
        balancer=balancer,
        balancer_zone_id=balancer_zone_id,
    )
    target.write(build_record_template(options))


@app.command(name="status-endpoint")
def status_endpoint(
    *,
    kind: Annotated[
        Literal["dynamodb", "s3"], Parameter(help="A table behind API Gateway, or a bucket with objects for zones.")
    ],
    table: Annotated[str | None, Parameter(help="The name of the table; without it, CloudFormation finds one.")] = None,
    existing_table: Annotated[
        str | None, Parameter(help="A table that is there: for the other regions of a global table.")
    ] = None,
    replica: Annotated[
        list[str] | None, Parameter(help="Another region that is to have the table. May be repeated.")
    ] = None,
    stage: Annotated[str, Parameter(help="The first part of the path.")] = _GATEWAY.stage,
    rate: Annotated[int, Parameter(help="Requests a second, over all callers.")] = _GATEWAY.rate,
    burst: Annotated[int, Parameter(help="Requests at once.")] = _GATEWAY.burst,
    bucket: Annotated[
        str | None, Parameter(help="The name of the bucket; without it, CloudFormation finds one.")
    ] = None,
    target: TemplateOptions = PRINTED,
) -> None:
    """Write a status endpoint that health checks and hosts can ask, and that needs no server.

    Anybody may read it: health checks cannot sign. See `export route53` for what looks at it.
    Example: holdfast export status-endpoint --kind dynamodb --replica eu-west-1
    """
    if kind == "s3":
        _refuse(
            {
                "--table": table,
                "--existing-table": existing_table,
                "--replica": replica,
                "--stage": stage != _GATEWAY.stage,
                "--rate": rate != _GATEWAY.rate,
                "--burst": burst != _GATEWAY.burst,
            },
            "--kind s3",
        )
        target.write(build_bucket_template(BucketOptions(name=bucket)))
        return
    _refuse({"--bucket": bucket}, "--kind dynamodb")
    _refuse({"--table": table if existing_table else None}, "--existing-table")
    options = GatewayOptions(
        table=table if existing_table is None else existing_table,
        table_exists=existing_table is not None,
        replicas=tuple(replica or ()),
        stage=stage,
        rate=rate,
        burst=burst,
    )
    target.write(build_gateway_template(options))


def _zones(given: Sequence[str], *, discover: bool, region: str | None, settings: Path | None) -> tuple[NamedZone, ...]:
    if not discover:
        _refuse({"--region": region}, "zones that are not to be discovered")
        return tuple(NamedZone.parse(text) for text in given)
    from holdfast.status.export.discovery import discover_zones

    with open_aws_session(load(settings, options={("aws", "region"): region}).settings) as session:
        return discover_zones(session, given)


def _by_zone(option: str, given: Sequence[str]) -> dict[Zone, str]:
    found: dict[Zone, str] = {}
    for text in given:
        zone, equals, value = text.partition("=")
        if not equals:
            raise InvalidValue(f"{option} {text!r}: expected an AZ-ID, an equals sign and what belongs to it")
        if zone in found:
            raise InvalidValue(f"{option}: {zone} is given twice")
        found[parse_zone(zone)] = value
    return found


def _refuse(given: Mapping[str, object], what: str) -> None:
    """Raise InvalidValue for options that say nothing here: whoever gave them means something else."""
    for option, value in given.items():
        if value:
            raise InvalidValue(f"{option} says nothing about {what}")
