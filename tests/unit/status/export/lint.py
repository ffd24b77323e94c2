"""What cfn-lint, which knows the schemas of CloudFormation, says about a template."""

import json
from functools import cache
from typing import Any


def complaints(template: dict[str, Any]) -> list[str]:
    """Errors and warnings; not its advice, which is a matter of taste."""
    # Imported late: it takes a second, and every worker collects all tests.
    from cfnlint.decode import decode_str  # type: ignore[import-untyped]

    decoded, errors = decode_str(json.dumps(template))
    matches = errors or _runner().validate_template(decoded)
    return [f"{match.rule.id} {match.message}" for match in matches if match.rule.severity in ("error", "warning")]


@cache
def _runner() -> Any:
    """All rules for all regions, as `cfnlint.api.lint_all` has them, which takes a second to load them every time."""
    from cfnlint.config import ConfigMixIn  # type: ignore[import-untyped]
    from cfnlint.helpers import REGIONS  # type: ignore[import-untyped]
    from cfnlint.runner import Runner  # type: ignore[import-untyped]

    return Runner(ConfigMixIn(include_checks=["I"], include_experimental=True, regions=REGIONS))
