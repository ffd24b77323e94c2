"""The runbook of a workload: what people read when the server is gone."""

import json
import re
from typing import Any

import pytest

from holdfast import SettingsError
from holdfast.evacuate.runbook import build_policy, build_runbook

FACTS: dict[str, Any] = {
    "region": "us-east-1",
    "zones": ("use1-az1", "use1-az2"),
    "actions": ("status", "zonal-shift"),
    "journal": "database",
    "status_store": "database",
    "accounts": (),
    "roles": (),
}


def test_every_zone_has_its_commands_and_they_name_the_workload() -> None:
    text = build_runbook("shop", **FACTS)
    commands = re.findall(r"^\$ holdfast zone (\w+) (\S+) --workload shop", text, re.MULTILINE)
    assert commands == [
        (name, zone) for zone in ("use1-az1", "use1-az2") for name in ("plan", "evacuate", "resume", "restore")
    ]
    assert text.startswith("# Evacuate a zone of shop\n")
    assert "{" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL), "every fact is filled in"
    assert "```terraform\n" in text


def test_a_runbook_without_terraform_lines_has_no_section_for_them() -> None:
    text = build_runbook("shop", **{**FACTS, "actions": ("status",), "accounts": ("profile ops",)})
    assert "Terraform" not in text
    assert "profile ops" in text


def test_the_policy_has_what_actions_journal_status_store_and_roles_need() -> None:
    assert build_policy(["status"], "database", "database") == {"Version": "2012-10-17", "Statement": []}
    role = "arn:aws:iam::210987654321:role/holdfast"
    policy: Any = build_policy(["status", "zonal-shift"], "dynamodb:runs", "s3:zones", [role])
    everything, assume = policy["Statement"]
    assert everything["Action"] == sorted(set(everything["Action"]))
    assert {each.partition(":")[0] for each in everything["Action"]} >= {"arc-zonal-shift", "dynamodb", "s3"}
    assert (assume["Action"], assume["Resource"]) == ("sts:AssumeRole", [role])
    text = build_runbook("shop", **{**FACTS, "journal": "dynamodb:runs", "status_store": "s3:zones", "roles": [role]})
    written = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert written is not None
    assert json.loads(written[1]) == policy


def test_an_action_that_is_not_installed_is_named() -> None:
    with pytest.raises(SettingsError, match="no evacuation action is called 'toy'"):
        build_policy(["toy"], "database", "database")
