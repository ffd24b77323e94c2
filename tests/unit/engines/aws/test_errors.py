"""What botocore's errors mean to a caller."""

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from holdfast import EngineError, EngineUnavailable, HoldfastError, NotAllowed, OutcomeUnknown, SettingsError
from holdfast.engines.aws.errors import reply_was_lost, translate
from tests.table import rows

WRITE, READ = "dynamodb PutItem", "dynamodb GetItem"
REFUSED = boto.EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
CLOSED = boto.ConnectionClosedError(endpoint_url="http://127.0.0.1:1")
HANGING = boto.ReadTimeoutError(endpoint_url="http://127.0.0.1:1")


def answer(code: str, status: int) -> boto.ClientError:
    return boto.ClientError(
        {"Error": {"Code": code, "Message": "said so"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "PutItem",
    )


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (boto.NoCredentialsError(), SettingsError, "AWS_ACCESS_KEY_ID"),
        (boto.PartialCredentialsError(provider="env", cred_var="secret"), SettingsError, "the secret"),
        (boto.ProfileNotFound(profile="nobody"), SettingsError, "nobody"),
        (boto.NoRegionError(), SettingsError, "AWS_DEFAULT_REGION"),
        (boto.ConfigParseError(path="/x", error="y"), SettingsError, "Correct"),
        (boto.CredentialRetrievalError(provider="p", error_msg="e"), NotAllowed, "sign in"),
        (boto.UnauthorizedSSOTokenError(), NotAllowed, "sign in"),
        (boto.PaginationError(message="again"), EngineError, "same page"),
        (REFUSED, EngineUnavailable, "check region, endpoint and network"),
        (boto.ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"), EngineUnavailable, "check region"),
        (answer("ThrottlingException", 400), EngineUnavailable, "throttled"),
        (answer("Anything", 429), EngineUnavailable, "throttled"),
        (answer("ServiceUnavailable", 503), EngineUnavailable, "try again later"),
        (answer("ExpiredTokenException", 400), NotAllowed, "expired"),
        (answer("InvalidClientTokenId", 403), NotAllowed, "does not know the credentials"),
        (answer("AccessDeniedException", 400), NotAllowed, "policy"),
        (answer("403", 403), NotAllowed, "policy"),
        (answer("RequestTimeTooSkewed", 403), NotAllowed, "clock"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_message_names_the_call_and_what_to_do(error: Exception, kind: type[HoldfastError], advice: str) -> None:
    translated = translate(error, WRITE)
    assert type(translated) is kind
    assert str(translated).startswith("AWS dynamodb PutItem: ")
    assert advice in str(translated)


@pytest.mark.parametrize(
    "error",
    [
        answer("ConditionalCheckFailedException", 400),
        answer("ResourceNotFoundException", 404),
        boto.ParamValidationError(report="wrong"),
    ],
)
@pytest.mark.parametrize("lost", [False, True])
def test_what_only_the_caller_understands_is_left_alone(error: Exception, lost: bool) -> None:
    assert translate(error, WRITE, reply_lost=lost) is None


@pytest.mark.parametrize("error", [CLOSED, HANGING, REFUSED, answer("InternalError", 500), answer("Throttling", 400)])
def test_a_write_whose_reply_was_lost_has_an_unknown_outcome_however_it_ended(error: Exception) -> None:
    """Also when a later attempt was refused or throttled: an earlier one may have been carried out."""
    assert type(translate(error, WRITE, reply_lost=True)) is OutcomeUnknown


@pytest.mark.parametrize("error", [CLOSED, HANGING, REFUSED, answer("InternalError", 500), answer("Throttling", 400)])
def test_a_read_whose_reply_was_lost_may_simply_be_repeated(error: Exception) -> None:
    assert type(translate(error, READ, reply_lost=True)) is EngineUnavailable


def test_a_reply_that_makes_no_sense_is_no_reply() -> None:
    nonsense = ResponseParserError("expected XML")
    assert type(translate(nonsense, WRITE)) is OutcomeUnknown
    assert type(translate(nonsense, READ)) is EngineUnavailable


@rows(
    ("exception", "status", "lost"),
    [
        (CLOSED, None, True),
        (HANGING, None, True),
        (boto.HTTPClientError(error="broken"), None, True),
        (REFUSED, None, False),
        (boto.SSLError(endpoint_url="x", error=OSError("[SSL: CERTIFICATE_VERIFY_FAILED]")), None, False),
        (boto.SSLError(endpoint_url="x", error=OSError("decryption failed or bad record mac")), None, True),
        (None, 200, False),
        (None, 400, False),
        (None, 500, True),
        (None, 502, True),
        (None, 503, False),
        (None, 504, True),
        (None, None, False),
    ],
)
def test_an_attempt_may_have_been_carried_out_unless_nothing_was_sent_or_the_service_said_no(
    exception: Exception | None, status: int | None, lost: bool
) -> None:
    reply = None if status is None else {"ResponseMetadata": {"HTTPStatusCode": status}}
    assert reply_was_lost(exception, reply) is lost
