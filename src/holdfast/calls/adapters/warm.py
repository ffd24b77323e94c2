"""What a warm-up came to: how many connections are ready, or why none is. Pure."""

from collections.abc import Iterable, Mapping

from holdfast._errors import CallError, InvalidValue


def check_connections(connections: int) -> None:
    """Refuse a number of connections that cannot be meant."""
    if connections < 1:
        raise InvalidValue(f"warm-up of {connections} connections: expected at least 1")


def stays_open(version: str, headers: Mapping[str, str]) -> bool:
    """Whether the connection that an answer came on is kept."""
    # https://www.rfc-editor.org/rfc/rfc9112#section-9.3
    said = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    return "close" not in said and (version != "HTTP/1.0" or "keep-alive" in said)


def ready_among(url: str, outcomes: Iterable[bool | BaseException]) -> int:
    """How many connections are ready: True for each that is, False for one that the server closed, or what went wrong.

    Raises the first error if none is.
    """
    known = list(outcomes)
    ready = sum(outcome is True for outcome in known)
    if ready:
        return ready
    for outcome in known:
        if isinstance(outcome, BaseException):
            outcome.add_note(f"holdfast: warm-up of {url}: none of {len(known)} connections is ready")
            raise outcome
    raise CallError(f"warm-up of {url}: the server closes each connection after its answer, so none can be kept")
