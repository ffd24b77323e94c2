"""What Route 53 makes of a tree of health checks, and of records that have them."""

from collections.abc import Callable, Mapping
from typing import Any


def healthy(template: Mapping[str, Any], name: str, answers: Callable[[str], bool]) -> bool:
    """Whether a health check is healthy when `answers` tells which addresses answer with 2xx or 3xx."""
    config = template["Resources"][name]["Properties"]["HealthCheckConfig"]
    match config["Type"]:
        case "CALCULATED":
            children = [healthy(template, child["Ref"], answers) for child in config["ChildHealthChecks"]]
            is_healthy = sum(children) >= config["HealthThreshold"]
        case "HTTPS":
            port = "" if config["Port"] == 443 else f":{config['Port']}"
            is_healthy = answers(f"https://{config['FullyQualifiedDomainName']}{port}{config['ResourcePath']}")
        case kind:
            raise AssertionError(kind)
    return is_healthy is not bool(config.get("Inverted"))


def used(template: Mapping[str, Any], answers: Callable[[str], bool]) -> set[str]:
    """The zones that DNS answers with: those whose record is healthy, or, if none is, all of them."""
    sets = template["Resources"]["Records"]["Properties"]["RecordSets"]
    good = {each["SetIdentifier"] for each in sets if healthy(template, each["HealthCheckId"]["Ref"], answers)}
    return good or {each["SetIdentifier"] for each in sets}
