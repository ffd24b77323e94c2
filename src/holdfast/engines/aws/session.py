"""One AWS account as one user or role: clients that are made once, and pages that are read as they are needed.

botocore retries, in its `standard` mode and as often as the options allow; nothing around it does.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import boto3.session
from botocore import exceptions as boto
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials
from botocore.parsers import ResponseParserError
from botocore.session import Session

from holdfast._errors import EngineError, InvalidValue
from holdfast.engines.aws.faults import reply_was_lost, translate
from holdfast.engines.aws.options import AwsOptions


class AwsSession:
    """Clients for the services of one account. Thread-safe; use as a context manager, or call `close`.

    Every call of a client raises what `faults.py` says, and botocore's ClientError for the rest. A profile that does
    not exist is an error at once; credentials are looked for, and a role assumed, when something needs them.
    """

    def __init__(self, options: AwsOptions) -> None:
        self._options = options
        self._lock = threading.Lock()  # using a client is thread-safe, making one is not
        self._clients: dict[str, Any] = {}
        self._closed = False
        with _translated("session"):
            core = _new_core(options)
            if options.role_arn is not None:
                core.register_component("credential_provider", _Role(options, options.role_arn))
            self._boto = boto3.session.Session(botocore_session=core)

    def client(self, service: str) -> Any:
        """The boto3 client of `service`, always the same one."""
        with self._lock:
            if self._closed:
                raise EngineError(f"the AWS session is closed: open another one to use {service}")
            if service not in self._clients:
                with _translated(service):
                    self._clients[service] = _create(self._boto.client, service, self._options)
            return self._clients[service]

    def paginate(
        self, service: str | BaseClient, operation: str, /, *, result: str | None = None, **arguments: Any
    ) -> Iterator[Any]:
        """All items of an operation that answers in pages; a page is asked for when its first item is.

        `operation` is named like the client's method. `result` says which list of a page is meant where there are
        several (`CommonPrefixes` of S3); no operation has an argument of that name.
        """
        client = self.client(service) if isinstance(service, str) else service
        call = f"{client.meta.service_model.service_name} {operation}"
        try:
            pages = client.get_paginator(operation).paginate(**arguments)
        except (boto.OperationNotPageableError, KeyError) as error:
            raise InvalidValue(f"AWS {call} is no operation that answers in pages") from error
        keys = {key.expression: key for key in pages.result_keys or ()}
        chosen = next(iter(keys)) if result is None else result
        if chosen not in keys:
            raise InvalidValue(f"pages of AWS {call} have no {chosen!r}: expected one of {', '.join(keys)}")
        return _items(pages, keys[chosen], call)

    def close(self) -> None:
        """Close all connections; clients that were handed out are of no more use. May be repeated."""
        with self._lock:
            self._closed = True
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Role:
    """Where botocore finds credentials when a role is assumed; it refreshes them itself, before they expire."""

    def __init__(self, options: AwsOptions, role_arn: str) -> None:
        self._options = options
        self._role_arn = role_arn
        self._source = _new_core(options)

    def load_credentials(self) -> Credentials:
        source = self._source.get_credentials()
        if source is None:
            raise boto.NoCredentialsError
        words = {"RoleSessionName": self._options.session_name, "ExternalId": self._options.external_id}
        known = {name: word for name, word in words.items() if word is not None}
        fetcher = AssumeRoleCredentialFetcher(self._create_sts, source, self._role_arn, known)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _create_sts(self, service: str, **keys: str) -> Any:
        return _create(self._source.create_client, service, self._options, **keys)


class _Attempts(threading.local):
    """Whether an attempt of the call that this thread is making may have been carried out unnoticed."""

    lost = False


def _new_core(options: AwsOptions) -> Session:
    """A session of botocore whose clients raise errors of Holdfast."""
    attempts = _Attempts()

    class Translating:
        """Goes in front of botocore's client class: every call, page and waiter comes through this method."""

        def _make_api_call(self, operation_name: str, api_params: Any) -> Any:
            service = self.meta.service_model.service_name  # type: ignore[attr-defined]
            # A call may make another one on its way, to assume a role.
            outer, attempts.lost = attempts.lost, False
            try:
                with _translated(f"{service} {operation_name}", attempts):
                    return super()._make_api_call(operation_name, api_params)  # type: ignore[misc]
            finally:
                attempts.lost = outer

    def note(**event: Any) -> None:
        attempts.lost = attempts.lost or reply_was_lost(event["exception"], event["parsed_response"])

    core = Session(profile=options.profile)
    core.get_scoped_config()  # raises for a profile that does not exist
    core.register("creating-client-class", lambda **event: event["base_classes"].insert(0, Translating))
    core.register("response-received", note)
    return core


def _create(make: Callable[..., Any], service: str, options: AwsOptions, **keys: str) -> Any:
    endpoint = options.endpoint(service)
    config = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        retries={"mode": "standard", "total_max_attempts": options.attempts},
    )
    if endpoint is not None:  # a host that was named has no other beside it with a prefix such as `data-`
        config = config.merge(Config(inject_host_prefix=False))
    try:
        return make(service, options.region, endpoint_url=endpoint, config=config, **keys)
    except boto.UnknownServiceError as error:
        raise InvalidValue(f"boto3 knows no AWS service {service!r}") from error


@contextmanager
def _translated(call: str, attempts: _Attempts | None = None) -> Iterator[None]:
    try:
        yield
    except (boto.BotoCoreError, boto.ClientError, ResponseParserError) as error:
        known = translate(error, call, lost=attempts is not None and attempts.lost)
        if known is None:
            raise
        raise known from error


def _items(pages: Any, key: Any, call: str) -> Iterator[Any]:
    with _translated(call):
        for page in pages:
            yield from key.search(page) or ()
