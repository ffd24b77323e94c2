"""What an error of botocore means to a caller, and what to do about it. Pure.

Only what is the same for every service is translated. The rest (a failed condition, a missing table) stays botocore's
ClientError, because only the caller knows what it means; one whose `ResponseMetadata.RetryAttempts` is not 0 may tell
of this very call's own earlier attempt.
"""

from collections.abc import Mapping
from typing import Any

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from holdfast._errors import EngineError, EngineUnavailable, HoldfastError, NotAllowed, OutcomeUnknown, SettingsError

_THROTTLING_CODES = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException"),
        *("TooManyRequestsException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"),
        *("BandwidthLimitExceeded", "SlowDown", "EC2ThrottledException"),
    }
)
_NOT_ALLOWED_CODES = {
    "the credentials have expired: sign in again": frozenset(
        {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
    ),
    "the credentials are not known there: check key, secret and account": frozenset(
        {
            *("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "AuthFailure"),
            *("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"),
        }
    ),
    # S3 answers HEAD without a body: then botocore takes the status for the code.
    "the policy of the user or role does not allow it": frozenset(
        {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403"}
    ),
    "this machine's clock differs too much from that of AWS: set it": frozenset({"RequestTimeTooSkewed"}),
}
_SETTINGS_ADVICE: dict[type[boto.BotoCoreError], str] = {
    boto.NoCredentialsError: "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or run where a role is",
    boto.PartialCredentialsError: "Set both the key id and the secret",
    boto.ProfileNotFound: "Check its name, and AWS_CONFIG_FILE if the file is not in ~/.aws",
    boto.NoRegionError: "Set the region in the options, or as AWS_DEFAULT_REGION",
    boto.ConfigParseError: "Mend the shared configuration file",
    boto.InvalidConfigError: "Mend the shared configuration file",
}
_SIGN_IN_ERRORS = (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError, boto.LoginError)
# A call that changes nothing is safe to repeat, whatever became of the reply.
_READ_PREFIXES = (
    "Get",
    "List",
    "Describe",
    "Discover",
    "Head",
    "Query",
    "Scan",
    "BatchGet",
    "TransactGet",
    "AssumeRole",
)


def translate(error: Exception, call: str, *, reply_lost: bool = False) -> HoldfastError | None:
    """What a failed call means; None if only the caller can tell.

    `call` is like `dynamodb PutItem`; `reply_lost` says that one of its attempts may have been carried out unnoticed.
    """
    if isinstance(error, boto.ClientError):
        return _translate_refusal(error, call, reply_lost=reply_lost)
    if isinstance(error, ResponseParserError):
        return _translate_lost_reply(call, error)
    for kind, advice in _SETTINGS_ADVICE.items():
        if isinstance(error, kind):
            return SettingsError(f"AWS {call}: {error}. {advice}")
    if isinstance(error, _SIGN_IN_ERRORS):
        return NotAllowed(
            f"AWS {call}: no credentials could be had: sign in again, or look after their source ({error})"
        )
    if isinstance(error, boto.PaginationError):
        return EngineError(f"AWS {call}: the service gives the same page again and again ({error})")
    if isinstance(error, boto.ConnectionError | boto.HTTPClientError):
        if reply_lost:
            return _translate_lost_reply(call, error)
        return EngineUnavailable(f"AWS {call}: cannot be reached: check region, endpoint and network ({error})")
    return None


def reply_was_lost(exception: Exception | None, reply: Mapping[str, Any] | None) -> bool:
    """Whether an attempt that ended so may have been carried out all the same."""
    if exception is not None:
        if isinstance(exception, boto.SSLError):
            return "CERTIFICATE_VERIFY_FAILED" not in str(exception)  # else it may have failed while reading the reply
        # The rest of this family, ConnectionError, is raised before anything was sent.
        return isinstance(exception, boto.HTTPClientError) and not isinstance(exception, boto.ConnectionError)
    # 503 is said by what stands in front of a service; the others also come after the work was done.
    return _get_http_status(reply or {}) in {500, 502, 504}


def _translate_refusal(error: boto.ClientError, call: str, *, reply_lost: bool) -> HoldfastError | None:
    code = error.response.get("Error", {}).get("Code", "")
    for meaning, codes in _NOT_ALLOWED_CODES.items():
        if code in codes:
            return NotAllowed(f"AWS {call}: {meaning} ({error})")
    status = _get_http_status(error.response)
    throttled = code in _THROTTLING_CODES or status == 429
    if reply_lost and (throttled or status >= 500):
        return _translate_lost_reply(call, error)
    if throttled:
        return EngineUnavailable(f"AWS {call}: throttled: call less often, or have the limit raised ({error})")
    if status >= 500:
        return EngineUnavailable(f"AWS {call}: the service is in trouble: try again later ({error})")
    return None


def _translate_lost_reply(call: str, error: Exception) -> HoldfastError:
    if call.partition(" ")[2].startswith(_READ_PREFIXES):
        return EngineUnavailable(f"AWS {call}: no good reply came: try again later ({error})")
    return OutcomeUnknown(f"AWS {call}: it may or may not have been done: look before you repeat it ({error})")


def _get_http_status(reply: Mapping[str, Any]) -> int:
    return int(reply.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
