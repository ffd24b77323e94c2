"""Whatever goes wrong is told in one shape, and what was not foreseen is not told to callers."""

import asyncio
import http
import json
import logging
from typing import Any

import httpx
import pytest
from litestar import Litestar, get, post
from litestar.exceptions import HTTPException, ValidationException
from litestar.params import JSONBody, Parameter
from msgspec import Struct

from holdfast import _errors
from holdfast._errors import (
    AttemptTimedOut,
    Backpressure,
    CallError,
    CapacityExhausted,
    Conflict,
    ConnectTimedOut,
    CredentialRefused,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseLocked,
    DeadlineExceeded,
    EngineError,
    EngineMismatch,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    LeaseLost,
    LimitReached,
    MissingExtra,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    RetryAfterTooLong,
    SettingsError,
)
from holdfast.server.problems import (
    CONTENT_TYPE,
    OutcomeUnknownWithAdvice,
    Problem,
    build_problem_response,
    describe_errors,
)

STATUSES = {
    HoldfastError: 500,
    InvalidValue: 400,
    SettingsError: 500,
    MissingExtra: 500,
    NotFound: 404,
    Conflict: 409,
    CapacityExhausted: 409,
    Backpressure: 429,
    LeaseLost: 500,
    CredentialRefused: 401,
    NotAllowed: 403,
    CallError: 504,
    AttemptTimedOut: 504,
    ConnectTimedOut: 504,
    DeadlineExceeded: 504,
    RetryAfterTooLong: 503,
    LimitReached: 503,
    EngineError: 500,
    EngineUnavailable: 503,
    DatabaseLocked: 503,
    DatabaseFull: 507,
    DatabaseCorrupt: 500,
    EngineMismatch: 500,
    OutcomeUnknown: 500,
}


class Body(Struct):
    count: int


def ask(error: Exception | None = None, method: str = "GET", path: str = "/here", **options: Any) -> httpx.Response:
    @get("/here")
    async def here(number: int = Parameter(default=1, ge=1)) -> str:
        if error is not None:
            raise error
        return str(number)

    @post("/body")
    async def body(data: JSONBody[Body]) -> int:
        return data.count

    app = Litestar(
        [here, body], exception_handlers={Exception: build_problem_response}, openapi_config=None, logging_config=None
    )

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


def problem_of(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    assert problem["title"] == http.HTTPStatus(response.status_code).phrase
    assert len(problem["trace_id"]) == 32
    return problem


def test_every_error_that_holdfast_raises_has_its_status_here() -> None:
    raised = {value for value in vars(_errors).values() if isinstance(value, type) and issubclass(value, HoldfastError)}
    assert set(STATUSES) == raised


@pytest.mark.parametrize(("kind", "status"), STATUSES.items(), ids=lambda value: getattr(value, "__name__", str(value)))
def test_an_error_of_ours_is_named_by_its_slug_and_told_in_its_own_words_where_it_is_about_the_request(
    kind: type[HoldfastError], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    more = {MissingExtra: "server", Backpressure: 1.0}
    error = kind("/some/file", *([more[kind]] if kind in more else []))
    response = ask(error)
    problem = problem_of(response)
    assert response.status_code == status
    assert problem["type"] == f"urn:holdfast:problem:{kind.slug}"
    assert problem["instance"] == "/here"
    assert "errors" not in problem
    if status < 500:
        assert problem["detail"] == str(error)
    else:
        assert "/some/file" not in response.text
        (record,) = [record for record in caplog.records if record.name == "holdfast.server"]
        assert record.getMessage() == str(error)
        assert vars(record)["trace_id"] == problem["trace_id"]


def test_a_refused_credential_is_told_how_to_present_one() -> None:
    assert ask(CredentialRefused("no")).headers["www-authenticate"] == 'Bearer realm="holdfast"'


def test_what_is_unavailable_says_when_to_come_back() -> None:
    assert ask(EngineUnavailable("away")).headers["retry-after"] == "1"
    assert "retry-after" not in ask(EngineError("broken")).headers


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.004, "1"), (1.0, "1"), (1.001, "2"), (60.0, "60")])
def test_a_tenant_that_sent_too_much_is_told_when_to_come_back(seconds: float, header: str) -> None:
    response = ask(Backpressure("too much", seconds))
    assert (response.status_code, response.headers["retry-after"]) == (429, header)
    assert problem_of(response)["retry_after"] == seconds
    assert "retry_after" not in problem_of(ask(NotFound("gone")))


def test_what_may_have_been_done_comes_with_advice(caplog: pytest.LogCaptureFixture) -> None:
    response = ask(OutcomeUnknownWithAdvice("the reply of /some/file was lost", "send it again"))
    problem = problem_of(response)
    assert (response.status_code, problem["type"]) == (500, "urn:holdfast:problem:outcome-unknown")
    assert problem["detail"].startswith("the request may or may not have been carried out: send it again; ")
    assert "/some/file" not in response.text
    assert "the reply of /some/file was lost" in caplog.messages
    assert "check before you repeat it" in problem_of(ask(OutcomeUnknown("lost")))["detail"]


def test_what_was_not_foreseen_is_logged_in_full_and_told_in_general(caplog: pytest.LogCaptureFixture) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with caplog.at_level(logging.ERROR, "holdfast.server"):
        response = ask(KeyError("hunter2"), headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert response.status_code == 500
    assert "hunter2" not in response.text
    assert "KeyError" not in response.text
    problem = problem_of(response)
    assert problem["type"] == "about:blank"
    assert problem["trace_id"] == trace
    (record,) = [record for record in caplog.records if record.name == "holdfast.server"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert vars(record)["trace_id"] == trace


@pytest.mark.parametrize(
    ("path", "name"),
    [("/here?number=0", "number"), ("/here?number=x", "number")],
)
def test_a_wrong_parameter_is_named(path: str, name: str) -> None:
    response = ask(path=path)
    problem = problem_of(response)
    assert (response.status_code, problem["detail"]) == (400, "the request is not valid")
    (error,) = problem["errors"]
    assert (error["in"], error["name"]) == ("query", name)
    assert error["detail"].startswith("Expected `int`")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"count": "x"}', {"in": "body", "name": "count", "detail": "Expected `int`, got `str`"}),
        ("{}", {"in": "body", "name": None, "detail": "Object missing required field `count`"}),
        ("[]", {"in": "body", "name": None, "detail": "Expected `object`, got `array`"}),
        ("", {"in": "body", "name": None, "detail": "expected a body, found none"}),
    ],
)
def test_the_wrong_part_of_a_body_is_named(content: str, error: dict[str, str | None]) -> None:
    response = ask(method="POST", path="/body", content=content)
    assert response.status_code == 400
    assert problem_of(response)["errors"] == [error]


def test_a_body_that_is_not_json_is_told_where_it_ends_to_be() -> None:
    response = ask(method="POST", path="/body", content="{bad")
    assert response.status_code == 400
    assert "JSON is malformed" in problem_of(response)["detail"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"count": "\xff"}', "not UTF-8"),
    ],
)
def test_a_body_that_no_decoder_takes_is_the_callers_fault(content: bytes, complaint: str) -> None:
    response = ask(method="POST", path="/body", content=content)
    assert response.status_code == 400
    assert problem_of(response)["detail"].endswith(complaint)


@pytest.mark.parametrize("error", [RecursionError("too deep"), UnicodeDecodeError("utf-8", b"", 0, 1, "why")])
def test_the_same_errors_from_elsewhere_are_not(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(error).status_code == 500
    assert any(record.exc_info and record.exc_info[1] is error for record in caplog.records)


@pytest.mark.parametrize("extra", [None, "text", {"a": 1}, ["text"]])
def test_a_validation_error_without_named_parts_is_told_all_the_same(extra: Any) -> None:
    response = ask(ValidationException("why", extra=extra))
    assert (response.status_code, problem_of(response)["errors"]) == (400, [])


def test_an_unknown_path_and_a_wrong_method_are_problems_too() -> None:
    nowhere, wrong = ask(path="/nowhere"), ask(method="PUT")
    assert nowhere.status_code == 404
    assert problem_of(nowhere)["instance"] == "/nowhere"
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "GET, OPTIONS"
    problem_of(wrong)


def test_an_error_of_the_framework_keeps_its_status_words_and_headers() -> None:
    response = ask(HTTPException("shorter, please", status_code=413, headers={"X-Limit": "1"}))
    assert (response.status_code, response.headers["x-limit"]) == (413, "1")
    assert problem_of(response)["detail"] == "shorter, please"


@pytest.mark.parametrize("host", ["localhost:abc", "[", "a" * 300, "é"])
def test_a_malformed_host_header_does_not_keep_an_error_from_being_told(host: str) -> None:
    response = ask(NotFound("it is gone"), headers={"host": host.encode("latin-1")})
    assert response.status_code in (400, 404)
    assert problem_of(response)["instance"] == "/here"


def test_a_route_describes_the_problems_that_it_answers_with() -> None:
    specs = describe_errors(401, 503)
    assert list(specs) == [401, 503]
    assert {spec.data_container for spec in specs.values()} == {Problem}
    assert {spec.media_type for spec in specs.values()} == {CONTENT_TYPE}
    assert [spec.description for spec in specs.values()] == ["Unauthorized", "Service Unavailable"]


def test_a_problem_is_frozen_and_leaves_out_errors_where_there_are_none() -> None:
    import msgspec

    problem = Problem(type="about:blank", title="t", status=400, detail="d", instance="/", trace_id="x")
    assert "errors" not in json.loads(msgspec.json.encode(problem))
    with pytest.raises(AttributeError):
        problem.status = 200  # type: ignore[misc]
