"""The generated files pass the linters of others, and the linters find planted faults."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from holdfast.aurora.template import Network, Scheduler, TemplateOptions, build_template
from tests.integration.aurora.linters import (
    fill_definition,
    lint_definition,
    lint_policy,
    lint_template,
    validate_definition,
)
from tests.table import sampled

VARIANTS = [(network, scheduler) for scheduler in (Scheduler.SCHEDULER, Scheduler.RULE) for network in Network]
NETWORK_INTERFACES = [
    *("ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"),
    "ec2:UnassignPrivateIpAddresses",
]


def build(network: Network, scheduler: Scheduler) -> dict[str, Any]:
    given = network is Network.EXISTING
    options = TemplateOptions(
        prefix="shop",
        network=network,
        scheduler=scheduler,
        subnets=("subnet-0123abcd",) if given else (),
        security_groups=("sg-0123abcd",) if given else (),
        email="ops@example.com",
    )
    return build_template(options, "holdfast/shop/0123.zip")


def policies(template: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::IAM::Role":
            yield from (each["PolicyDocument"] for each in resource["Properties"]["Policies"])


@pytest.mark.parametrize("variant", sampled(VARIANTS))
def test_cfn_lint_has_nothing_to_say_about_any_variant(variant: tuple[Network, Scheduler]) -> None:
    """Needs seconds: it compares 90 resources with their schemas in three partitions."""
    assert lint_template(build(*variant)) == []


def test_cfn_lint_finds_a_missing_resource() -> None:
    """Needs a second: it reads the schemas of all resources."""
    template = build(Network.NONE, Scheduler.RULE)
    del template["Resources"]["DeadLetters"]
    assert any("DeadLetters" in complaint for complaint in lint_template(template))


@pytest.mark.parametrize(("network", "scheduler"), VARIANTS)
def test_parliament_finds_only_what_lambda_demands_for_a_network(network: Network, scheduler: Scheduler) -> None:
    findings = [finding for policy in policies(build(network, scheduler)) for finding in lint_policy(policy)]
    assert findings == ([] if network is Network.NONE else [("RESOURCE_STAR", NETWORK_INTERFACES)])


def test_parliament_finds_a_wider_role_and_an_action_that_does_not_exist() -> None:
    [scaling, *_] = policies(build(Network.NONE, Scheduler.RULE))
    wider = deepcopy(scaling)
    wider["Statement"].append({"Effect": "Allow", "Action": "rds:*", "Resource": "*"})
    assert "RESOURCE_STAR" in [issue for issue, _ in lint_policy(wider)]
    wrong = deepcopy(scaling)
    wrong["Statement"][0]["Action"] = "rds:ModifyInstance"
    assert "UNKNOWN_ACTION" in [issue for issue, _ in lint_policy(wrong)]


def test_statelint_accepts_the_state_machine_and_finds_a_dangling_next() -> None:
    definition = fill_definition(build(Network.NONE, Scheduler.RULE))
    assert lint_definition(definition) == []
    definition["States"]["ScaleOldWriter"]["Next"] = "Nowhere"
    assert any("Nowhere" in problem for problem in lint_definition(definition))


def test_asl_validator_accepts_the_state_machine_and_finds_a_dangling_next(tmp_path: Path) -> None:
    """Needs a second: Node starts twice."""
    definition = fill_definition(build(Network.NONE, Scheduler.RULE))
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(definition))
    code, said = validate_definition(file)
    assert (code, "is valid" in said) == (0, True), said
    definition["States"]["ScaleOldWriter"]["Next"] = "Nowhere"
    file.write_text(json.dumps(definition))
    code, said = validate_definition(file)
    assert code == 1
    assert "Nowhere" in said
