"""Translate refusals of AWS into errors that the runner understands, by their codes.

The engine translates what all services have in common, such as throttling and lost replies. An action names the codes
that only its services have.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast._errors import EngineError, EngineUnavailable, HoldfastError, OutcomeUnknown

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

BUSY: Mapping[str, type[HoldfastError]] = dict.fromkeys(
    ("ConcurrentUpdateException", "ResourceContention", "ScalingActivityInProgress"), EngineUnavailable
)
"""Codes of scaling services that end by themselves: another change of the resource is under way."""


@contextmanager
def translate_refusals(session: "AwsSession", codes: Mapping[str, type[HoldfastError]] | None = None) -> Iterator[None]:
    """Raise the error of `codes` for a refusal with one of these codes, and EngineError for all others.

    A code that means EngineUnavailable says that nothing was written, even if the status of the reply is 500, which
    otherwise leaves the outcome unknown.
    """
    known = codes or {}
    try:
        yield
    except OutcomeUnknown as error:
        if known.get(_get_code(error.__cause__)) is EngineUnavailable:
            raise EngineUnavailable(str(error)) from error
        raise
    except session.client("sts").exceptions.ClientError as error:
        message = f"AWS refused {error.operation_name}: {error.response['Error'].get('Message') or _get_code(error)}"
        raise known.get(_get_code(error), EngineError)(message) from error


def _get_code(error: BaseException | None) -> str:
    """Return the code of an error reply; "" for other errors. Some replies add `Fault` to a code."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", "")).removesuffix("Fault")
