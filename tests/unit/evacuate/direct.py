"""A session with a simulated region without HTTP, for tests that make thousands of calls."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from holdfast.evacuate.accounts import Accounts
from holdfast.simulate.aws.protocols import ServiceError
from holdfast.simulate.aws.region import SimulatedRegion


class DirectSession:
    """Carries out calls in this process. `before` gets the name of each operation, and may raise ServiceError."""

    def __init__(self, region: SimulatedRegion, before: Callable[[str], None]) -> None:
        self._region = region
        self._before = before
        self._names = {
            service: {xform_name(each): each for each in operations} for service, operations in region.handlers.items()
        }

    def client(self, service: str) -> Any:
        calls = {name: self._bind(service, operation) for name, operation in self._names[service].items()}
        return SimpleNamespace(exceptions=SimpleNamespace(ClientError=ClientError), **calls)

    def paginate(self, service: str, operation: str, **arguments: Any) -> Iterator[Any]:
        reply = getattr(self.client(service), operation)(**arguments)
        (items,) = (each for each in reply.values() if isinstance(each, list))
        return iter(items)

    def close(self) -> None:
        """Nothing is open."""

    def _bind(self, service: str, operation: str) -> Callable[..., dict[str, Any]]:
        def call(**arguments: Any) -> dict[str, Any]:
            try:
                self._before(operation)
                return self._region.call(service, operation, arguments)
            except ServiceError as error:
                members = {"Error": {"Code": error.code, "Message": error.message}, **error.members}
                raise ClientError(members, operation) from error  # type: ignore[arg-type]

        return call


def open_accounts(region: SimulatedRegion, before: Callable[[str], None] = lambda _: None) -> Accounts:
    """Return the account of a region, as the settings would describe it."""
    session: Any = DirectSession(region, before)
    return Accounts([("the default account", lambda *_: session)], lambda _: region.region)
