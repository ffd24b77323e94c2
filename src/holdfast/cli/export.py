"""`holdfast export`: write CloudFormation templates, for DNS that avoids zones and for endpoints. Deploys nothing."""

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
    AddressOptions,
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
    build_address_template,
    build_bucket_template,
    build_gateway_template,
    build_record_template,
)
from holdfast.status.export.checks import Check

app = App(
    name="export",
    help="Write CloudFormation templates: for evacuating a zone by DNS, and for finding the zone of a function.\n\n"
    "Example: holdfast export status-endpoint --kind s3 --output endpoint.json",
    help_epilogue=EXIT_CODES_HELP,
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """Options that select where a template is written."""

    output: Annotated[Path | None, Parameter(help="A new file for the template. Default: standard output.")] = None
    force: Annotated[bool, Parameter(help="Overwrite an existing file of --output.")] = False

    def write(self, template: dict[str, Any]) -> None:
        if self.output is None:
            _refuse({"--force": self.force}, "without --output")
            print_json(template)
            return
        text = msgspec.json.format(msgspec.json.encode(template), indent=2) + b"\n"
        with create_file(self.output, force=self.force) as file:
            file.write(text)


PRINTED = TemplateOptions()
_TIMING, _GATEWAY, _ADDRESS = CheckTiming(), GatewayOptions(), AddressOptions()


@app.command
def route53(
    *,
    record: Annotated[str, Parameter(help="The name that clients look up, such as www.example.com.")],
    hosted_zone_id: Annotated[str | None, Parameter(help="The hosted zone of the record.")] = None,
    hosted_zone_name: Annotated[str | None, Parameter(help="Its name, to check that the record belongs to it.")] = None,
    balancer: Annotated[str | None, Parameter(help="The DNS name of the load balancer.")] = None,
    balancer_zone_id: Annotated[str | None, Parameter(help="The canonical hosted zone id of the balancer.")] = None,
    zone: Annotated[
        list[str] | None, Parameter(help="AZ-ID and name in this account, use1-az1=us-east-1b. Once per zone.")
    ] = None,
    discover: Annotated[bool, Parameter(help="Ask EC2 for the names of the zones in --zone, or of all zones.")] = False,
    region: Annotated[str | None, Parameter(help="The region of --discover. Overrides aws.region.")] = None,
    endpoint: Annotated[
        list[str] | None, Parameter(help="Check a status endpoint, https://host. Several decide by quorum.")
    ] = None,
    bucket: Annotated[
        list[str] | None,
        Parameter(help="Check objects in a bucket; NAME=REGION if it is not in the zones' region."),
    ] = None,
    prefix: Annotated[str, Parameter(help="Folders of the objects in --bucket, such as status/.")] = "",
    routing_control: Annotated[
        list[str] | None, Parameter(help="Follow an ARC routing control: AZ-ID=ARN. Once per zone.")
    ] = None,
    health_check: Annotated[
        list[str] | None, Parameter(help="Use an existing health check, of any account: AZ-ID=ID. Once per zone.")
    ] = None,
    workload: Annotated[str | None, Parameter(help="Also avoid zones that are out for this workload only.")] = None,
    quorum: Annotated[
        int | None, Parameter(help="How many of --endpoint or --bucket must report out. Default: a majority.")
    ] = None,
    interval: Annotated[Literal[10, 30], Parameter(help="Seconds between checks.")] = _TIMING.interval,
    failure_threshold: Annotated[
        int, Parameter(help="Consecutive equal results that change the state of a check.")
    ] = _TIMING.failure_threshold,
    target: TemplateOptions = PRINTED,
    settings: SettingsFile = None,
) -> None:
    """Write weighted alias records for the zonal names of a load balancer, each with a health check.

    Choose the check with --endpoint, --bucket, --routing-control or --health-check.
    Options for the hosted zone and the balancer that you omit become template parameters.
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
        raise InvalidValue("expected exactly one of --endpoint, --bucket, --routing-control and --health-check")
    has_own_check = bool(endpoint or bucket)
    _refuse(
        {
            "--prefix": prefix and not bucket,
            "--workload": workload is not None and not has_own_check,
            "--quorum": quorum is not None and not has_own_check,
            "--interval": timing.interval != _TIMING.interval and not has_own_check,
            "--failure-threshold": timing.failure_threshold != _TIMING.failure_threshold and not has_own_check,
        },
        "with this kind of check",
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
    table: Annotated[str | None, Parameter(help="Name of the table. Default: generated by CloudFormation.")] = None,
    existing_table: Annotated[
        str | None, Parameter(help="Use an existing table: for the other regions of a global table.")
    ] = None,
    replica: Annotated[
        list[str] | None, Parameter(help="Another region that gets a replica of the table. May be repeated.")
    ] = None,
    stage: Annotated[str, Parameter(help="The first part of the path.")] = _GATEWAY.stage,
    rate: Annotated[int, Parameter(help="Requests per second, over all callers.")] = _GATEWAY.rate,
    burst: Annotated[int, Parameter(help="Concurrent requests.")] = _GATEWAY.burst,
    bucket: Annotated[str | None, Parameter(help="Name of the bucket. Default: generated by CloudFormation.")] = None,
    target: TemplateOptions = PRINTED,
) -> None:
    """Write a status endpoint for health checks and hosts that needs no server.

    The endpoint is public: health checks cannot sign requests. `export route53` writes the checks.
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
            "with --kind s3",
        )
        target.write(build_bucket_template(BucketOptions(name=bucket)))
        return
    _refuse({"--bucket": bucket}, "with --kind dynamodb")
    _refuse({"--table": table if existing_table else None}, "with --existing-table")
    options = GatewayOptions(
        table=table if existing_table is None else existing_table,
        table_exists=existing_table is not None,
        replicas=tuple(replica or ()),
        stage=stage,
        rate=rate,
        burst=burst,
    )
    target.write(build_gateway_template(options))


@app.command(name="address-endpoint")
def address_endpoint(
    *,
    vpc_endpoint: Annotated[
        str | None, Parameter(help="An interface endpoint of execute-api in the VPC. Default: the stack creates one.")
    ] = None,
    stage: Annotated[str, Parameter(help="The first part of the path.")] = _ADDRESS.stage,
    target: TemplateOptions = PRINTED,
) -> None:
    """Write a private API that tells Lambda functions in a VPC their address, to find their zone.

    Only for functions without Lambda's metadata endpoint. Set aws.address_endpoint to the output of the stack.
    Example: holdfast export address-endpoint --output address.json
    """
    target.write(build_address_template(AddressOptions(vpc_endpoint=vpc_endpoint, stage=stage)))


def _zones(given: Sequence[str], *, discover: bool, region: str | None, settings: Path | None) -> tuple[NamedZone, ...]:
    if not discover:
        _refuse({"--region": region}, "without --discover")
        return tuple(NamedZone.parse(text) for text in given)
    from holdfast.status.export.discovery import discover_zones

    with open_aws_session(load(settings, options={("aws", "region"): region}).settings) as session:
        return discover_zones(session, given)


def _by_zone(option: str, given: Sequence[str]) -> dict[Zone, str]:
    found: dict[Zone, str] = {}
    for text in given:
        zone, equals, value = text.partition("=")
        if not equals:
            raise InvalidValue(f"{option} {text!r}: expected AZ-ID=VALUE")
        if zone in found:
            raise InvalidValue(f"{option}: {zone} is given twice")
        found[parse_zone(zone)] = value
    return found


def _refuse(given: Mapping[str, object], condition: str) -> None:
    """Raise InvalidValue for options that have no effect under this condition: the user expects one."""
    for option, value in given.items():
        if value:
            raise InvalidValue(f"{option} cannot be used {condition}")
