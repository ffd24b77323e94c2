"""Helpers for all templates. Pure."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from holdfast._errors import InvalidValue

Template: TypeAlias = dict[str, Any]
"""A CloudFormation template, or a part of one, in its JSON form."""

# Names allowed in health checks and records: lower-case letters, digits and hyphens between dots.
HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d+")
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, but without dots: the certificate of S3
# covers one label, so no health check could read a bucket with dots over HTTPS.
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def new_template(description: str, resources: Mapping[str, Any], **parts: Any) -> Template:
    """Return a template of these resources. Empty parts are left out, because CloudFormation refuses them."""
    head = {"AWSTemplateFormatVersion": "2010-09-09", "Description": description}
    return {**head, **{name: part for name, part in parts.items() if part}, "Resources": dict(resources)}


def build_resource(kind: str, **properties: Any) -> Template:
    """Return a resource of a type such as `AWS::S3::Bucket`."""
    return {"Type": kind, "Properties": properties}


def build_retained_resource(kind: str, **properties: Any) -> Template:
    """Return a resource that stays when its stack is deleted: without it, all zones would count as in."""
    policies = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain"}
    return {**build_resource(kind, **properties), **policies}


def build_policy(**statement: Any) -> Template:
    """Return a policy document with one statement that allows something."""
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}


def build_logical_id(*words: str) -> str:
    """Return a name for a resource: CloudFormation accepts only letters and digits (`use1-az1` is `Use1Az1`)."""
    return "".join(part[:1].upper() + part[1:] for word in words for part in re.split(r"[^A-Za-z0-9]+", word))


def require_match(name: str, value: str, pattern: re.Pattern[str], expected: str) -> None:
    """Raise InvalidValue, naming `name`, unless the whole value matches the pattern."""
    if not pattern.fullmatch(value):
        raise InvalidValue(f"{name} is {value!r}: expected {expected}")
