"""CloudFormation would take the templates: cfn-lint knows its schemas."""

import copy
from typing import Any

import pytest

from tests.table import rows
from tests.unit.status.export.lint import complaints
from tests.unit.status.export.samples import TEMPLATES


@rows("name", TEMPLATES)
def test_cloudformation_takes_every_template(name: str) -> None:
    assert complaints(TEMPLATES[name]) == []


def broken(name: str, *place: str | int, value: Any) -> dict[str, Any]:
    """A template with something else in one place, or, with None, without it."""
    template = copy.deepcopy(TEMPLATES[name])
    inner: Any = template["Resources"]
    for step in place[:-1]:
        inner = inner[step]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return template


CONFIG = ("HealthCheckUse1Az1", "Properties", "HealthCheckConfig")
RECORD = ("Records", "Properties", "RecordSets", 0)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (broken("records with status", *CONFIG, "Type", value="HTTPSS"), "HTTPSS"),
        (broken("records with status", *CONFIG, "Inverse", value=True), "Inverse"),
        (broken("records with status", *RECORD, "HealthCheckId", value={"Ref": "X"}), "X"),
        (broken("gateway with a table", "StatusTable", "Properties", "KeySchema", value=None), "KeySchema"),
        (broken("gateway with a table", "Stage", "Properties", "RestApiId", value=None), "RestApiId"),
        (broken("address endpoint", "VpcEndpoint", "Properties", "Subnets", value=[]), "Subnets"),
        (broken("bucket", "StatusBucket", "Properties", "Encryption", value=True), "Encryption"),
    ],
)
def test_a_template_that_is_broken_is_complained_about(template: dict[str, Any], told: str) -> None:
    assert any(told in complaint for complaint in complaints(template))
