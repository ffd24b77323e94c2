"""What all templates have in common. Pure."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from holdfast._errors import InvalidValue

Template: TypeAlias = dict[str, Any]
"""A CloudFormation template, or a part of one, as JSON has it."""

# Names as health checks and records have them: letters, digits and hyphens between dots, in lower case.
HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d+")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, without the dots that are allowed there:
# the certificate of S3 covers one label, so that nobody could check such a bucket over HTTPS.
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def new_template(description: str, resources: Mapping[str, Any], **parts: Any) -> Template:
    """A template of these resources; parts that are empty are left out, because CloudFormation wants it so."""
    head = {"AWSTemplateFormatVersion": "2010-09-09", "Description": description}
    return {**head, **{name: part for name, part in parts.items() if part}, "Resources": dict(resources)}


def build_resource(kind: str, **properties: Any) -> Template:
    """A resource of a kind such as `AWS::S3::Bucket`."""
    return {"Type": kind, "Properties": properties}


def build_retained_resource(kind: str, **properties: Any) -> Template:
    """A resource that stays when its stack goes: without it, every zone that is out would come back."""
    policies = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain"}
    return {**build_resource(kind, **properties), **policies}


def build_policy(**statement: Any) -> Template:
    """A policy document of one statement, which allows something."""
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}


def build_logical_id(*words: str) -> str:
    """A name for a resource: CloudFormation takes letters and digits only (`use1-az1` is `Use1Az1`)."""
    return "".join(part[:1].upper() + part[1:] for word in words for part in re.split(r"[^A-Za-z0-9]+", word))


def require_match(name: str, value: str, pattern: re.Pattern[str], expected: str) -> None:
    """Raise InvalidValue, with the name, unless the whole value is as the pattern says."""
    if not pattern.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}: expected {expected}")
