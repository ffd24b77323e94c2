"""The names and ARNs of deployed resources, and functions that build references and resources of a template. Pure."""

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast._errors import InvalidValue
from holdfast.aurora.machine import Function

Template: TypeAlias = dict[str, Any]
"""A CloudFormation template, or a part of one, in its JSON form."""
ALIAS = "live"
"""The alias that events invoke: the newest version of a function."""
_PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?", re.ASCII)


def check_prefix(value: str, name: str = "prefix") -> str:
    """Return `value` if it can be the prefix of a deployment. Raise InvalidValue, which calls it `name`, otherwise."""
    if not _PREFIX.fullmatch(value):
        raise InvalidValue(
            f"{name} is {value!r}: expected up to 30 lower-case letters, digits and hyphens, beginning with a letter, "
            "and not ending with a hyphen"
        )
    return value


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the resources of one deployment."""

    prefix: str

    def __post_init__(self) -> None:
        check_prefix(self.prefix)

    @property
    def stack(self) -> str:
        """The name of the stack, and of the state machine, the topic and the group of schedules in it."""
        return f"{self.prefix}-scaling"

    @property
    def rule(self) -> str:
        """The name of the rule that starts runs."""
        return f"{self.prefix}-schedule-scaling"

    @property
    def ended_rule(self) -> str:
        """The name of the rule for executions that did not succeed."""
        return f"{self.prefix}-scaling-ended"

    @property
    def lock_table(self) -> str:
        return f"{self.prefix}-scaling-lock"

    @property
    def dead_letters(self) -> str:
        """The name of the queue of events that no function could handle."""
        return f"{self.prefix}-scaling-dead-letters"

    def function(self, function: Function) -> str:
        return f"{self.prefix}-{function}"

    def role(self, name: str) -> str:
        return f"{self.prefix}-{name}"


def build_resource(kind: str, **properties: Any) -> Template:
    """Return a resource of a type such as `AWS::SNS::Topic`."""
    return {"Type": kind, "Properties": properties}


def refer(logical_id: str) -> Template:
    """Return a reference to a resource or parameter."""
    return {"Ref": logical_id}


def get_attribute(logical_id: str, attribute: str = "Arn") -> Template:
    """Return a reference to an attribute of a resource."""
    return {"Fn::GetAtt": [logical_id, attribute]}


def build_arn(service: str, resource: str) -> Template:
    """Return the ARN of a resource in the account, region and partition of the stack."""
    return {"Fn::Sub": f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{resource}"}


def get_logical_id(name: str) -> str:
    """Return the name of a resource within a template: `ModifyInstance` for `modify-instance`."""
    return "".join(word.capitalize() for word in name.split("-"))
