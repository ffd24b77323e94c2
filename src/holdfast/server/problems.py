"""Translate all errors into HTTP problem details (RFC 9457)."""

import http
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi import ResponseSpec
from litestar.serialization import decode_json
from msgspec import UNSET, Struct, UnsetType

from holdfast._errors import (
    Backpressure,
    CallError,
    CapacityExhausted,
    Conflict,
    CredentialRefused,
    DatabaseFull,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    LimitReached,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RetryAfterTooLong,
)
from holdfast.server.access import get_trace_id
from holdfast.server.credentials import mask_tokens

logger = logging.getLogger("holdfast.server")

CONTENT_TYPE = "application/problem+json"
_MAX_INSTANCE_CHARACTERS = 512
"""More than the path of any route has; a client must not get back all that it sends."""


class Problem(Struct, frozen=True, kw_only=True):
    """A problem: `type` is for programs, `detail` for people, and `trace_id` leads to the entry in the log."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    trace_id: str
    errors: list[dict[str, str | None]] | UnsetType = UNSET
    """The invalid parts of the request."""
    retry_after: float | UnsetType = UNSET
    """Seconds after which the request would be accepted; more precise than the header."""


class OutcomeUnknownWithAdvice(OutcomeUnknown):
    """An OutcomeUnknown with better advice for the caller than to check before repeating the request."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


def describe_errors(*statuses: int) -> Mapping[int, ResponseSpec]:
    """Return the OpenAPI description of the error responses with these statuses."""
    return {
        status: ResponseSpec(
            Problem, generate_examples=False, description=http.HTTPStatus(status).phrase, media_type=CONTENT_TYPE
        )
        for status in statuses
    }


_STATUS_BY_ERROR: dict[type[HoldfastError], http.HTTPStatus] = {
    InvalidValue: http.HTTPStatus.BAD_REQUEST,
    CredentialRefused: http.HTTPStatus.UNAUTHORIZED,
    NotAllowed: http.HTTPStatus.FORBIDDEN,
    NotFound: http.HTTPStatus.NOT_FOUND,
    Conflict: http.HTTPStatus.CONFLICT,
    CapacityExhausted: http.HTTPStatus.CONFLICT,
    Backpressure: http.HTTPStatus.TOO_MANY_REQUESTS,
    CallError: http.HTTPStatus.GATEWAY_TIMEOUT,
    RetryAfterTooLong: http.HTTPStatus.SERVICE_UNAVAILABLE,
    LimitReached: http.HTTPStatus.SERVICE_UNAVAILABLE,
    EngineUnavailable: http.HTTPStatus.SERVICE_UNAVAILABLE,
    DatabaseFull: http.HTTPStatus.INSUFFICIENT_STORAGE,
}
"""The status of each error. A class that is not listed has the status of its nearest base class, or 500."""

_HEADERS_BY_STATUS = {
    http.HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'Bearer realm="holdfast"'},
    http.HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}


_TOO_LARGE = "the body is larger than this route accepts, mostly 1 MiB: send less in one request"
# File names, hosts and statements must not be shown to every caller.
_HIDDEN_DETAIL = "the server could not process the request; its log says why, under this trace_id"


def build_problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Return the response for `error`. Errors of the server are logged in full, and described in general terms."""
    match error:
        case HoldfastError():
            status = _find_status(type(error))
            detail = str(error)
            if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.error("%s", error, extra={"trace_id": get_trace_id(request.scope), "error": error.slug})
                detail = _describe_publicly(error)
            retry_after = error.retry_after if isinstance(error, Backpressure) else UNSET
            return _problem(
                request, status, detail, problem_type=f"urn:holdfast:problem:{error.slug}", retry_after=retry_after
            )
        case ValidationException():
            errors = [
                {"in": item.get("source"), "name": _get_parameter_name(item), "detail": _format_complaint(item)}
                for item in _select_dictionaries(error.extra)
            ] or _parse_missing(error.detail)
            return _problem(request, http.HTTPStatus.BAD_REQUEST, "the request is not valid", errors=errors)
        case HTTPException():
            status = http.HTTPStatus(error.status_code)
            detail = error.detail or status.description
            if status is http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE and detail == status.phrase:
                detail = _TOO_LARGE
            return _problem(request, status, detail, headers=error.headers)
        case RecursionError() | UnicodeDecodeError() if _is_body_error(error):
            found = "is nested too deeply" if isinstance(error, RecursionError) else "is not UTF-8"
            return _problem(request, http.HTTPStatus.BAD_REQUEST, f"JSON is malformed: it {found}")
        case _:
            logger.error("request failed", exc_info=error, extra={"trace_id": get_trace_id(request.scope)})
            return _problem(request, http.HTTPStatus.INTERNAL_SERVER_ERROR, _HIDDEN_DETAIL)


def _is_body_error(error: Exception) -> bool:
    """Return whether the decoding of a body raised the error, where Litestar does not expect it."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code is decode_json.__code__


def _describe_publicly(error: HoldfastError) -> str:
    if not isinstance(error, OutcomeUnknown):
        return _HIDDEN_DETAIL
    advice = error.advice if isinstance(error, OutcomeUnknownWithAdvice) else "check before you repeat it"
    return f"the request may or may not have been carried out: {advice}; the log says why, under this trace_id"


def _problem(
    request: Request[Any, Any, Any],
    status: http.HTTPStatus,
    detail: str,
    *,
    problem_type: str = "about:blank",
    headers: Any = None,
    errors: list[dict[str, str | None]] | UnsetType = UNSET,
    retry_after: float | UnsetType = UNSET,
) -> Response[Problem]:
    problem = Problem(
        type=problem_type,
        title=status.phrase,
        status=int(status),
        detail=detail,
        # Not from request.url, which raises if the Host header is malformed.
        instance=mask_tokens(request.scope["path"])[:_MAX_INSTANCE_CHARACTERS],
        trace_id=get_trace_id(request.scope),
        errors=errors,
        retry_after=retry_after,
    )
    headers = {**_HEADERS_BY_STATUS.get(status, {}), **(headers or {})}
    if retry_after is not UNSET:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))  # whole seconds; 0 would mean no wait
    return Response(content=problem, status_code=status, media_type=CONTENT_TYPE, headers=headers)


def _find_status(error_type: type[HoldfastError]) -> http.HTTPStatus:
    listed = (_STATUS_BY_ERROR[base] for base in error_type.__mro__ if base in _STATUS_BY_ERROR)
    return next(listed, http.HTTPStatus.INTERNAL_SERVER_ERROR)


# Litestar's name for the whole body is that of the handler's parameter; for a missing body it adds quotes.
_BODY = "data"


def _get_parameter_name(item: dict[str, Any]) -> str | None:
    name: str | None = item.get("key")
    return None if name == _BODY and item.get("source") == "body" else name


# Litestar reports a missing parameter only as text, followed by the path and the whole query.
_MISSING = re.compile(r"Missing required (?P<source>\w+) parameter '(?P<name>[^']+)'")


def _parse_missing(detail: str) -> list[dict[str, str | None]]:
    found = _MISSING.match(detail)
    return [] if found is None else [{"in": found["source"], "name": found["name"], "detail": "missing"}]


def _format_complaint(item: dict[str, Any]) -> str | None:
    complaint: str | None = item.get("message")
    if complaint is not None and " matching regex " in complaint:  # regular expressions are hard to read
        if item.get("key") == "reason":
            return "expected one line of text without control characters, and not blank"
        return "expected text that matches the pattern in /openapi.json"
    return "expected a body, found none" if complaint == repr(_BODY) else complaint


def _select_dictionaries(extra: Any) -> list[dict[str, Any]]:
    return [item for item in extra if isinstance(item, dict)] if isinstance(extra, list) else []
