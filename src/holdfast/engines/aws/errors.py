"""Translate errors of botocore into errors of Holdfast, with advice. Pure.

Only errors that mean the same for every service are translated. Others (a failed condition, a missing table) stay
botocore's ClientError, because only the caller knows what they mean. If `ResponseMetadata.RetryAttempts` of such an
error is not 0, an earlier attempt of the same call may have caused it.
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
    "AWS does not know the credentials: check key, secret and account": frozenset(
        {
            *("InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "AuthFailure"),
            *("SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"),
        }
    ),
    # S3 answers HEAD without a body, so botocore uses the status as the code.
    "the policy of the user or role does not allow this call": frozenset(
        {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403"}
    ),
    "the clock of this machine differs too much from that of AWS: set it": frozenset({"RequestTimeTooSkewed"}),
}
_SETTINGS_ADVICE: dict[type[boto.BotoCoreError], str] = {
    boto.NoCredentialsError: "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or aws.profile, or run with a role",
    boto.PartialCredentialsError: "Set both the key id and the secret",
    boto.ProfileNotFound: "Check the name of the profile, and AWS_CONFIG_FILE if the file is not in ~/.aws",
    boto.NoRegionError: "Set aws.region (or AwsOptions.region, or --region), or AWS_DEFAULT_REGION",
    boto.ConfigParseError: "Correct the shared configuration file",
    boto.InvalidConfigError: "Correct the shared configuration file",
}
_SIGN_IN_ERRORS = (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError, boto.LoginError)
# A call that only reads is safe to repeat, even if its reply was lost.
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
    """Return the Holdfast error for a failed call, or None if only the caller knows what the error means.

    `call` is like `dynamodb PutItem`. `reply_lost` says that AWS may have carried out an attempt whose reply was lost.
    """
    if isinstance(error, boto.ClientError):
        return _translate_refusal(error, call, reply_lost=reply_lost)
    if isinstance(error, ResponseParserError):
        return _translate_lost_reply(call, error)
    for kind, advice in _SETTINGS_ADVICE.items():
        if isinstance(error, kind):
            return SettingsError(f"AWS {call}: {str(error).rstrip('.')}. {advice}")
    if isinstance(error, _SIGN_IN_ERRORS):
        return NotAllowed(
            f"AWS {call}: cannot get credentials: sign in again, or check the source of the credentials ({error})"
        )
    if isinstance(error, boto.PaginationError):
        return EngineError(f"AWS {call}: the service returns the same page repeatedly ({error})")
    if isinstance(error, boto.ConnectionError | boto.HTTPClientError):
        if reply_lost:
            return _translate_lost_reply(call, error)
        return EngineUnavailable(f"AWS {call}: cannot be reached: check region, endpoint and network ({error})")
    return None


def reply_was_lost(exception: Exception | None, reply: Mapping[str, Any] | None) -> bool:
    """Return whether AWS may have carried out an attempt that ended with `exception` or `reply`."""
    if exception is not None:
        if isinstance(exception, boto.SSLError):
            return "CERTIFICATE_VERIFY_FAILED" not in str(exception)  # otherwise it may have failed on the reply
        # ConnectionError is raised before anything was sent.
        return isinstance(exception, boto.HTTPClientError) and not isinstance(exception, boto.ConnectionError)
    # A load balancer answers 503 before the service gets the request; the others may come after the work was done.
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
        return EngineUnavailable(f"AWS {call}: throttled: call less often, or ask AWS to raise the limit ({error})")
    if status >= 500:
        return EngineUnavailable(f"AWS {call}: the service failed: try again later ({error})")
    return None


def _translate_lost_reply(call: str, error: Exception) -> HoldfastError:
    if call.partition(" ")[2].startswith(_READ_PREFIXES):
        return EngineUnavailable(f"AWS {call}: no valid reply: try again later ({error})")
    return OutcomeUnknown(f"AWS {call}: the call may or may not have been done: check before you repeat it ({error})")


def _get_http_status(reply: Mapping[str, Any]) -> int:
    return int(reply.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
