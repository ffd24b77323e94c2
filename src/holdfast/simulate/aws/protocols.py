"""Requests and replies of AWS services, read and written by the models of botocore.

A service speaks one protocol: `json` (ECS, CloudWatch), `rest-json` (ARC, EKS, Lambda), `query` (STS, ELB, Auto
Scaling) or `ec2`. The models check requests, and replies as well, so that a simulated service cannot answer what AWS
never would. They also say how lists are divided into pages.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement, tostring

import botocore.session
from botocore.model import OperationModel, ServiceModel
from botocore.validate import ParamValidator

REQUEST_ID = "00000000-0000-0000-0000-000000000000"
_ANYTHING = r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\r\n\t]*"
"""A pattern of the models that allows any text. It is written for Java, and Python does not accept it."""


class Refusal(StrEnum):
    """A refusal that every service has. Its code depends on the protocol."""

    THROTTLED = "throttled"
    DENIED = "denied"
    """The policy does not allow the call."""
    INVALID = "invalid"
    """A parameter is wrong or missing."""
    UNKNOWN_KEY = "unknown-key"
    """No account has the access key."""


class ServiceError(Exception):
    """An error reply: a refusal, or the code of an error in the model of the service, with its members."""

    def __init__(self, code: str, message: str = "Simulated", **members: str) -> None:
        super().__init__(message)
        self.code, self.message, self.members = code, message, members


class Request(NamedTuple):
    """An HTTP request."""

    method: str
    path: str
    """The path and the query."""
    body: bytes
    target: str = ""
    """The header `x-amz-target`, by which the protocol `json` names the operation."""


class Reply(NamedTuple):
    """An HTTP reply."""

    status: int
    body: bytes
    headers: Mapping[str, str]


Call = tuple[OperationModel, dict[str, Any]]
"""An operation, and its parameters."""


class Service(ABC):
    """One service, with the operations that are simulated. The subclasses are its protocols."""

    refusals: ClassVar[Mapping[str, tuple[str, int]]]
    """The code and the status of each refusal."""

    def __init__(self, model: ServiceModel, pages: Mapping[str, Any], operations: Iterable[str]) -> None:
        self._model = model
        self._pages = pages
        self._operations = {each: model.operation_model(each) for each in operations}

    def read(self, request: Request) -> Call:
        """Return the operation of a request, and its parameters. Raise ServiceError if the model forbids them."""
        operation, values = self._read(request)
        shape: Any = operation.input_shape
        problems = ParamValidator().validate(values, shape)
        if problems.has_errors():
            raise ServiceError(Refusal.INVALID, problems.generate_report(), reason="MissingValue")
        for name, value in values.items():
            limits = shape.members[name].metadata
            if isinstance(value, str) and (
                not re.fullmatch(limits.get("pattern", ".*").replace(_ANYTHING, ".*"), value, re.DOTALL)
                or len(value) > limits.get("max", len(value))
                or value not in limits.get("enum", [value])
            ):
                raise ServiceError(Refusal.INVALID, f"{name} is {value!r}", reason="InvalidExpiresIn")
        return operation, values

    def cut_page(self, call: Call, reply: Mapping[str, Any], size: int) -> Mapping[str, Any]:
        """Return the page of a reply that a call asks for, with at most `size` items."""
        operation, values = call
        names = self._pages.get(operation.name)
        if names is None:
            return reply
        key = names["result_key"]
        if isinstance(key, list):  # GetMetricData also has messages, which are not simulated
            key = key[0]
        items = reply[key]
        start = int(values.get(names["input_token"], 0))
        end = start + min(values.get(names["limit_key"], size), size)
        return {**reply, key: items[start:end]} | ({names["output_token"]: str(end)} if end < len(items) else {})

    def write(self, operation: OperationModel, values: Mapping[str, Any]) -> Reply:
        """Return the reply of an operation. Raise AssertionError if the model does not have such a reply."""
        shape: Any = operation.output_shape
        if shape is None:
            assert not values, f"{operation.name} replies nothing"
        else:
            problems = ParamValidator().validate(values, shape)
            assert not problems.has_errors(), f"{operation.name}: {problems.generate_report()}"
        return self._write(operation, values)

    def write_error(self, error: ServiceError) -> Reply:
        """Return an error as the service would."""
        for shape in self._model.error_shapes:
            details = shape.metadata.get("error", {})
            if error.code == details.get("code", shape.name):
                # The models of the protocol `json` have no status. Errors of a server have such names.
                status = details.get("httpStatusCode", 500 if error.code.startswith("Server") else 400)
                return self._write_error(error.code, status, error)
        return self._write_error(*self.refusals[error.code], error)

    @abstractmethod
    def _read(self, request: Request) -> Call: ...

    @abstractmethod
    def _write(self, operation: OperationModel, values: Mapping[str, Any]) -> Reply: ...

    @abstractmethod
    def _write_error(self, code: str, status: int, error: ServiceError) -> Reply: ...


class _RestJsonService(Service):
    refusals: ClassVar = {
        Refusal.THROTTLED: ("ThrottlingException", 429),
        Refusal.DENIED: ("AccessDeniedException", 403),
        Refusal.INVALID: ("ValidationException", 400),
        Refusal.UNKNOWN_KEY: ("UnrecognizedClientException", 403),
    }

    def _read(self, request: Request) -> Call:
        parts = urlsplit(request.path)
        for operation in self._operations.values():
            template, _, fixed = operation.http["requestUri"].partition("?")
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(template))
            found = re.fullmatch(pattern, parts.path)
            if found and operation.http["method"] == request.method:
                query = [each for each in parse_qsl(parts.query) if each not in parse_qsl(fixed)]
                given = {name: unquote(text) for name, text in found.groupdict().items()} | dict(query)
                shape: Any = operation.input_shape
                values = {name: _convert(shape.members[name], text) for name, text in given.items()}
                return operation, values | json.loads(request.body or b"{}")
        raise ServiceError(Refusal.INVALID, f"{request.method} {parts.path} is not simulated", reason="InvalidStatus")

    def _write(self, operation: OperationModel, values: Mapping[str, Any]) -> Reply:
        body = json.dumps(values).encode()
        return Reply(operation.http.get("responseCode", 200), body, {"content-type": "application/json"})

    def _write_error(self, code: str, status: int, error: ServiceError) -> Reply:
        body = json.dumps({"message": error.message, **error.members}).encode()
        return Reply(status, body, {"content-type": "application/json", "x-amzn-errortype": code})


class _JsonService(_RestJsonService):
    """Like `rest-json`, but a header names the operation, and all parameters are in the body."""

    refusals: ClassVar = {
        Refusal.THROTTLED: ("ThrottlingException", 400),
        Refusal.DENIED: ("AccessDeniedException", 400),
        Refusal.INVALID: ("InvalidParameterException", 400),
        Refusal.UNKNOWN_KEY: ("UnrecognizedClientException", 400),
    }

    def _read(self, request: Request) -> Call:
        operation = self._operations.get(request.target.rpartition(".")[2])
        if operation is None:
            raise ServiceError(Refusal.INVALID, f"{request.target} is not simulated")
        return operation, json.loads(request.body or b"{}")

    def _write(self, _: OperationModel, values: Mapping[str, Any]) -> Reply:
        version = self._model.metadata["jsonVersion"]
        return Reply(200, json.dumps(values).encode(), {"content-type": f"application/x-amz-json-{version}"})

    def _write_error(self, code: str, status: int, error: ServiceError) -> Reply:
        body = json.dumps({"__type": code, "message": error.message, **error.members}).encode()
        return Reply(status, body, {"content-type": "application/x-amz-json-1.1"})


class _QueryService(Service):
    refusals: ClassVar = {
        Refusal.THROTTLED: ("Throttling", 400),
        Refusal.DENIED: ("AccessDenied", 403),
        Refusal.INVALID: ("ValidationError", 400),
        Refusal.UNKNOWN_KEY: ("InvalidClientTokenId", 403),
    }

    def _read(self, request: Request) -> Call:
        form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        operation = self._operations.get(form["Action"])
        if operation is None:
            raise ServiceError(Refusal.INVALID, f"{form['Action']} is not simulated")
        return operation, self._read_value(operation.input_shape, "", form) or {}

    def _read_value(self, shape: Any, key: str, form: Mapping[str, str]) -> Any:
        """Return the value of all fields whose names begin with a key, or None."""
        if key and not any(each == key or each.startswith(f"{key}.") for each in form):
            return None
        if shape.type_name == "structure":
            keys = {name: f"{key}.{self._get_field(name, each)}".lstrip(".") for name, each in shape.members.items()}
            values = {name: self._read_value(shape.members[name], each, form) for name, each in keys.items()}
            return {name: value for name, value in values.items() if value is not None}
        if shape.type_name == "list":
            items: list[Any] = []
            while (item := self._read_value(shape.member, self._get_item(key, len(items) + 1), form)) is not None:
                items.append(item)
            return items
        return _convert(shape, form[key])

    def _get_field(self, name: str, member: Any) -> str:
        return str(member.serialization.get("name", name))

    def _get_item(self, key: str, number: int) -> str:
        return f"{key}.member.{number}"

    def _write(self, operation: OperationModel, values: Mapping[str, Any]) -> Reply:
        shape: Any = operation.output_shape
        root = Element(f"{operation.name}Response", xmlns=str(self._model.metadata["xmlNamespace"]))
        if shape is not None:
            wrapper = shape.serialization.get("resultWrapper")
            _append_members(root if wrapper is None else SubElement(root, wrapper), shape, values)
        return Reply(200, tostring(root), {"content-type": "text/xml"})

    def _write_error(self, code: str, status: int, error: ServiceError) -> Reply:
        root = Element("ErrorResponse")
        _append_error(root, code, error.message)
        SubElement(root, "RequestId").text = REQUEST_ID
        return Reply(status, tostring(root), {"content-type": "text/xml"})


class _Ec2Service(_QueryService):
    """Like `query`, with other names."""

    refusals: ClassVar = {
        Refusal.THROTTLED: ("RequestLimitExceeded", 503),
        Refusal.DENIED: ("UnauthorizedOperation", 403),
        Refusal.INVALID: ("InvalidParameterValue", 400),
        Refusal.UNKNOWN_KEY: ("AuthFailure", 401),
    }

    def _get_field(self, name: str, member: Any) -> str:
        found = member.serialization.get("queryName") or member.serialization.get("name", name)
        return str(found[0].upper() + found[1:])

    def _get_item(self, key: str, number: int) -> str:
        return f"{key}.{number}"

    def _write_error(self, code: str, status: int, error: ServiceError) -> Reply:
        root = Element("Response")
        _append_error(SubElement(root, "Errors"), code, error.message)
        SubElement(root, "RequestID").text = REQUEST_ID
        return Reply(status, tostring(root), {"content-type": "text/xml"})


_PROTOCOLS: dict[str, type[Service]] = {
    "json": _JsonService,
    "rest-json": _RestJsonService,
    "query": _QueryService,
    "ec2": _Ec2Service,
}


def open_service(name: str, operations: Iterable[str]) -> Service:
    """Return a service, by boto3's name."""
    model, pages = _load_models(name)
    return _PROTOCOLS[str(model.resolved_protocol)](model, pages, operations)


@cache
def _load_models(name: str) -> tuple[ServiceModel, Mapping[str, Any]]:
    session = botocore.session.Session()
    found = session.get_component("data_loader").load_service_model(name, "paginators-1")["pagination"]
    return session.get_service_model(name), found


def _convert(shape: Any, text: str) -> Any:
    """Return a scalar of a request."""
    if shape.type_name == "boolean":
        return text == "true"
    return int(text) if shape.type_name == "integer" else text


def _append_error(parent: Element, code: str, message: str) -> None:
    error = SubElement(parent, "Error")
    SubElement(error, "Code").text, SubElement(error, "Message").text = code, message


def _append_members(parent: Element, shape: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        member = shape.members[name]
        _append(parent, member, member.serialization.get("name", name), value)


def _append(parent: Element, shape: Any, name: str, value: Any) -> None:
    """Write a value of a reply as an element."""
    child = SubElement(parent, name)
    if shape.type_name == "structure":
        _append_members(child, shape, value)
    elif shape.type_name == "list":
        for each in value:
            _append(child, shape.member, shape.member.serialization.get("name", "member"), each)
    elif shape.type_name == "timestamp":
        child.text = datetime.fromtimestamp(value, UTC).isoformat()
    else:
        child.text = str(value).lower() if isinstance(value, bool) else str(value)
