"""The AWS accounts whose resources are evacuated: sessions for each account and region.

A zone is in one region, so a run uses one region of each account. An entry of the journal names its account and region
by the ARN of its resource, so that an operator with other profiles can restore it.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

from holdfast._errors import HoldfastError, NotFound
from holdfast._types import Zone
from holdfast.evacuate.refusals import translate_refusals

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

    SessionOpener: TypeAlias = Callable[[str, int], AwsSession]
    """Opens a session in a region, with a maximum number of attempts for each call."""

READ_ATTEMPTS = 4
"""Requests per call of a list, including the first. An account that stays throttled for longer cannot be read."""


class Account:
    """One account in one region. Thread-safe."""

    def __init__(self, name: str, region: str, open_session: "SessionOpener") -> None:
        self.name = name
        """Its name in messages: a role, a profile, or `the account of [aws]`."""
        self.region = region
        self._open_session = open_session
        self._lock = threading.Lock()
        self._sessions: dict[int, AwsSession] = {}
        self._id: str | None = None

    @property
    def scope(self) -> str:
        """The account and the region, in words."""
        return f"{self.name} in {self.region}"

    @property
    def session(self) -> "AwsSession":
        """The session for changes. botocore repeats no call of it: an evacuation reads before it writes again."""
        return self._get_session(1)

    @property
    def reader(self) -> "AwsSession":
        """The session for lists of resources. botocore repeats its calls when AWS throttles them."""
        return self._get_session(READ_ATTEMPTS)

    def _get_session(self, max_attempts: int) -> "AwsSession":
        with self._lock:
            if max_attempts not in self._sessions:
                self._sessions[max_attempts] = self._open_session(self.region, max_attempts)
            return self._sessions[max_attempts]

    @property
    def is_known(self) -> bool:
        """True if its number is known."""
        return self._id is not None

    def get_id(self) -> str:
        """Return the number of the account. The first call asks AWS, which also proves that the credentials work."""
        if self._id is None:
            with translate_refusals(self.reader):
                self._id = str(self.reader.client("sts").get_caller_identity()["Account"])
        return self._id

    def close(self) -> None:
        """Close its sessions. May be repeated."""
        with self._lock:
            for session in self._sessions.values():
                session.close()


class Accounts:
    """All accounts of the settings. Thread-safe; use as a context manager, or call `close`."""

    def __init__(self, openers: "Sequence[tuple[str, SessionOpener]]", find_region: Callable[[Zone], str]) -> None:
        """`openers` has the name of each account, and a function that opens a session.

        `find_region` returns the region of a zone, and raises NotFound if it is unknown.
        """
        self._openers = openers
        self._find_region = find_region
        self._lock = threading.Lock()
        self._accounts: dict[str, list[Account]] = {}

    def list_for(self, zone: Zone) -> Sequence[Account]:
        """Return every account, in the region of a zone."""
        return self._get(self._find_region(zone))

    def find(self, arn: str) -> Account:
        """Return the account and region of a resource. Raise NotFound if no account of the settings has it.

        An account whose number cannot be read is passed over: the resource may be in another one.
        """
        _, _, _, region, number, *_ = [*arn.split(":"), *[""] * 5]
        problem: HoldfastError | None = None
        # Those whose number is known come first: an account that does not answer must not delay the others.
        for account in sorted(self._get(region), key=lambda each: not each.is_known):
            try:
                if account.get_id() == number:
                    return account
            except HoldfastError as error:
                problem = problem or error
        raise problem or NotFound(
            f"{arn} is in account {number}, which is not configured: add it as [[evacuation.account]]"
        )

    def close(self) -> None:
        """Close all sessions. May be repeated."""
        with self._lock:
            for accounts in self._accounts.values():
                for account in accounts:
                    account.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _get(self, region: str) -> list[Account]:
        with self._lock:
            if region not in self._accounts:
                self._accounts[region] = [Account(name, region, opener) for name, opener in self._openers]
            return self._accounts[region]
