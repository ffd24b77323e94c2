"""What cfn-lint, which knows the schemas of CloudFormation, says about a template."""

import json
from typing import Any

from cfnlint.api import lint_all  # type: ignore[import-untyped]


def complaints(template: dict[str, Any]) -> list[str]:
    """Errors and warnings; not its advice, which is a matter of taste."""
    matches = lint_all(json.dumps(template))
    return [f"{match.rule.id} {match.message}" for match in matches if match.rule.severity in ("error", "warning")]
