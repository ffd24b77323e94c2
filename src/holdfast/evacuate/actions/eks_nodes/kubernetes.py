"""A small client of the Kubernetes API of one cluster: lists, reads, patches and evictions, as JSON over HTTPS.

No write is repeated: the caller reads first. A patch names the version of the object that it was made for, so that
changes of others are never overwritten.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from holdfast._clock import Clock
from holdfast._errors import (
    Conflict,
    EngineError,
    EngineUnavailable,
    HoldfastError,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
)

CONNECT_TIMEOUT, READ_TIMEOUT = 2.0, 10.0
"""Seconds, as for calls of AWS."""
TOKEN_SECONDS = 600.0
"""Seconds for which a token is used. EKS accepts it for 15 minutes."""
PAGE_SIZE = 500
"""Objects of a list in one reply, as `kubectl` asks for."""
CONFLICT_ATTEMPTS = 5
"""Attempts to change an object that others change at the same time. The kubelet updates its node every few seconds."""
NODES = "/api/v1/nodes"
_UNSENT_STATUSES = (429, 503)
"""Replies of a server that has not begun to work on the request."""
_BUDGET_CAUSE = "DisruptionBudget"
"""The cause of an eviction that a budget forbids. A request that is throttled has the same status, 429."""

Object = Mapping[str, Any]
"""An object of Kubernetes, as in JSON."""


class _Reply(NamedTuple):
    status: int
    value: dict[str, Any]
    text: str
    """The message of a refusal."""


class KubernetesClient:
    """The API of one cluster. Thread-safe."""

    def __init__(
        self, endpoint: str, *, cluster: str, get_token: Callable[[], str], clock: Clock, certificate: str = ""
    ) -> None:
        """`certificate` is that of the authority of the cluster, as PEM; without it, the system's authorities apply."""
        import urllib3  # comes with boto3; commands that need no cluster should not wait for it

        verification: dict[str, Any] = {"ca_cert_data": certificate} if certificate else {}
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT)
        self._pool = urllib3.PoolManager(1, maxsize=8, retries=False, timeout=timeout, **verification)
        self._endpoint = endpoint.rstrip("/")
        self._cluster = cluster
        self._get_token = get_token
        self._clock = clock
        self._lock = threading.Lock()
        self._token, self._token_until = "", 0.0
        self.has_answered = False
        """Whether the cluster has ever replied. The endpoint of a private cluster never does outside its network."""

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Return all objects of a list, from all of its pages."""
        found: list[dict[str, Any]] = []
        position: dict[str, str] = {}
        while True:
            reply = self._call("GET", path, {**query, "limit": str(PAGE_SIZE), **position})
            found += reply["items"]
            token = reply.get("metadata", {}).get("continue")
            if not token:
                return found
            position = {"continue": token}

    def get(self, path: str) -> dict[str, Any]:
        """Return one object. Raise NotFound if it does not exist."""
        return self._call("GET", path)

    def update(self, path: str, found: Object, build_patch: Callable[[Object], Object | None]) -> bool:
        """Change an object by a merge patch, and return whether it was written. `found` is the object as it was read.

        `build_patch` returns None if nothing has to be changed. If others have changed the object meanwhile, it is
        called with the new state. Raise NotFound if the object was deleted, and Conflict if others change it all the
        time.
        """
        for _ in range(CONFLICT_ATTEMPTS):
            patch = build_patch(found)
            if patch is None:
                return False
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                self._call("PATCH", path, body={**patch, "metadata": {**patch.get("metadata", {}), **version}})
            except Conflict:
                found = self.get(path)
            else:
                return True
        raise Conflict(f"{self._describe('PATCH', path)}: others change it all the time. Try again later")

    def evict(self, pod: Object) -> str:
        """Ask to evict a pod. Return why a disruption budget forbids it now; "" if the pod goes, or is gone."""
        names = pod["metadata"]
        path = f"/api/v1/namespaces/{quote(names['namespace'])}/pods/{quote(names['name'])}/eviction"
        # A stateful set creates its next pod with the same name, which must not be evicted.
        options = {"preconditions": {"uid": names["uid"]}}
        identity = {"name": names["name"], "namespace": names["namespace"]}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": identity, "deleteOptions": options}
        reply = self._send("POST", path, body=body)
        if reply.status in (404, 409):
            return ""
        if reply.status == 429:
            causes = reply.value.get("details", {}).get("causes", ())
            budgets = [each.get("message", "") for each in causes if each.get("reason") == _BUDGET_CAUSE]
            if budgets:
                return budgets[0] or reply.text
        self._check(reply, "POST", path)
        return ""

    def _call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: Object | None = None
    ) -> dict[str, Any]:
        reply = self._send(method, path, query, body=body)
        self._check(reply, method, path)
        return reply.value

    def _send(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: Object | None = None
    ) -> _Reply:
        from urllib3 import exceptions

        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"authorization": f"Bearer {self._find_token()}", "accept": "application/json", "content-type": kind}
        address = f"{self._endpoint}{path}{'?' if query else ''}{urlencode(query or {})}"
        content = None if body is None else msgspec.json.encode(body)
        try:
            reply = self._pool.request(method, address, body=content, headers=headers, redirect=False)
        except (exceptions.NewConnectionError, exceptions.ConnectTimeoutError) as error:
            text = "cannot be reached: check that its endpoint is open to this machine"
            raise EngineUnavailable(f"{self._describe(method, path)}: {text} ({error})") from error
        except exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                text = "its certificate is not of the authority that EKS names: check for a proxy"
                raise EngineError(f"{self._describe(method, path)}: {text} ({error})") from error
            raise self._build_lost_reply(method, path, str(error)) from error
        except exceptions.HTTPError as error:
            raise self._build_lost_reply(method, path, str(error)) from error
        self.has_answered = True
        try:
            value = msgspec.json.decode(reply.data, type=dict[str, Any])
        except msgspec.DecodeError as error:
            if reply.status < 300:
                raise self._build_lost_reply(method, path, "the reply is not JSON") from error
            value = {"message": reply.data.decode(errors="replace")[:200].strip()}
        return _Reply(reply.status, value, str(value.get("message", "")))

    def _check(self, reply: _Reply, method: str, path: str) -> None:
        """Raise the error of a reply that is not a success."""
        status, call = reply.status, self._describe(method, path)
        if status < 300:
            return
        text = f"{status} {reply.text}".strip()
        if status == 401:
            with self._lock:
                self._token_until = 0.0
            raise NotAllowed(
                f"{call}: the cluster does not know the role of these credentials. Add an access entry for it: aws eks "
                f"create-access-entry --cluster-name {self._cluster} --principal-arn ROLE_ARN --kubernetes-groups "
                f"holdfast ({text})"
            )
        if status == 403:
            raise NotAllowed(
                f"{call}: the access entry of the role does not allow this call. Bind the group of the entry (aws eks "
                f"create-access-entry --cluster-name {self._cluster} --principal-arn ROLE_ARN --kubernetes-groups "
                f"holdfast) to a cluster role that does ({text})"
            )
        if status == 404:
            raise NotFound(f"{call}: {text}")
        if status == 409:
            raise Conflict(f"{call}: others have changed it: read it again ({text})")
        if status == 410:  # the pages of a list are kept for some minutes only
            raise EngineUnavailable(f"{call}: the list has changed while it was read: read it again ({text})")
        if status in _UNSENT_STATUSES:
            raise EngineUnavailable(f"{call}: throttled, or not ready: try again later ({text})")
        if status >= 500:
            raise self._build_lost_reply(method, path, text)
        raise EngineError(f"{call}: refused ({text})")

    def _find_token(self) -> str:
        """Return a token that is at most TOKEN_SECONDS old."""
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._token_until:
                self._token, self._token_until = self._get_token(), now + TOKEN_SECONDS
            return self._token

    def _build_lost_reply(self, method: str, path: str, reason: str) -> HoldfastError:
        call = self._describe(method, path)
        if method == "GET":
            return EngineUnavailable(f"{call}: no valid reply: try again later ({reason})")
        return OutcomeUnknown(f"{call}: it may or may not have been done: check before you repeat it ({reason})")

    def _describe(self, method: str, path: str) -> str:
        return f"Kubernetes {self._cluster} {method} {path}"
