"""A simulated Kubernetes API server over HTTP, for one EKS cluster.

It checks tokens as EKS does, divides lists into pages, refuses patches of old versions, and refuses evictions that a
disruption budget forbids. Calls can fail.
"""

import base64
import json
import re
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from holdfast._clock import Clock
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.kubernetes_state import ClusterState, Json, covers

TOKEN_PREFIX = "k8s-aws-v1."  # noqa: S105 - the beginning of every token
_PATH = re.compile(
    r"/(?:api/v1|apis/(?:policy|karpenter\.sh)/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?P<eviction>/eviction)?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


def build_token(account: str) -> str:
    """Return a token that the simulated server accepts. Its signature is missing, because nobody checks it."""
    credential, headers = f"X-Amz-Credential=AKIA{account}/any", "X-Amz-SignedHeaders=host;x-k8s-aws-id"
    url = f"https://sts.us-east-1.amazonaws.com/?Action=GetCallerIdentity&{credential}&{headers}"
    return TOKEN_PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


class ApiError(Exception):
    """A refusal of the API server, with its HTTP status. May be raised in `faults`."""

    def __init__(self, status: int, message: str = "Simulated", *, budget: str = "") -> None:
        """`budget` says which disruption budget forbids an eviction."""
        super().__init__(message)
        self.status, self.message, self.budget = status, message, budget

    def to_json(self) -> Json:
        details = {"causes": [{"reason": "DisruptionBudget", "message": self.budget}]} if self.budget else {}
        return {"kind": "Status", "status": "Failure", "code": self.status, "message": self.message, "details": details}


class Request(NamedTuple):
    """An HTTP request."""

    method: str
    path: str
    """The path and the query."""
    body: bytes
    token: str


class SimulatedCluster(ClusterState):
    """One cluster with its API. Thread-safe."""

    def __init__(self, clock: Clock, *, has_karpenter: bool = False) -> None:
        super().__init__(clock, has_karpenter=has_karpenter)
        self.faults: Callable[[str], None] = lambda _: None
        """Called with each call, such as `PATCH nodes` or `POST eviction`, before it is carried out. It may raise
        ApiError or ReplyLost."""
        self.after_write: Callable[[str], None] = lambda _: None
        """Called with each write after it was carried out."""
        self.accounts: frozenset[str] | None = None
        """The numbers of the accounts that have an access entry; None means all."""
        self.page_size = 500
        self.calls: deque[str] = deque(maxlen=100_000)

    def answer(self, request: Request) -> tuple[int, Json] | None:
        """Return the status and the reply to a request, or None if the reply gets lost."""
        try:
            self._check_token(request.token)
            parts = urlsplit(request.path)
            found = _PATH.fullmatch(parts.path)
            if found is None or found["plural"] not in self.objects:
                return 404, {"message": "404 page not found"}
            call = f"{request.method} {'eviction' if found['eviction'] else found['plural']}"
            self.calls.append(call)
            is_lost = False
            try:
                self.faults(call)
            except ReplyLost:
                is_lost = True
            key = "/".join(unquote(each) for each in (found["namespace"], found["name"]) if each)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            with self.lock:
                self.advance()
                reply = self._carry_out(call, found["plural"], key, query, json.loads(request.body or b"{}"))
                self.advance()
            if request.method != "GET":
                self.after_write(call)
        except ApiError as error:
            return error.status, error.to_json()
        return None if is_lost else (201 if request.method == "POST" else 200, reply)

    def _carry_out(self, call: str, plural: str, key: str, query: Mapping[str, str], body: Json) -> Json:
        method = call.partition(" ")[0]
        if method == "GET" and not key:
            return self._list(plural, query)
        if key not in self.objects[plural]:
            raise ApiError(404, f'{plural} "{key}" not found')
        found = self.objects[plural][key]
        if method == "GET":
            return deepcopy(found)
        if call == "POST eviction":
            self._evict(found, body)
            return {"kind": "Status", "status": "Success"}
        if method != "PATCH":
            raise ApiError(405, f"{call} is not simulated")
        self._patch(plural, key, body)
        return deepcopy(self.objects[plural][key])

    def _list(self, plural: str, query: Mapping[str, str]) -> Json:
        items = [deepcopy(each) for _, each in sorted(self.objects[plural].items())]
        selector = query.get("fieldSelector", "")
        if selector:
            field, _, node = selector.partition("=")
            if field != "spec.nodeName":
                raise ApiError(400, f"the field {field} is not simulated")
            items = [each for each in items if each["spec"].get("nodeName") == node]
        start = int(query.get("continue", 0))
        end = start + min(int(query.get("limit", self.page_size)), self.page_size)
        metadata = {"continue": str(end)} if end < len(items) else {}
        return {"items": items[start:end], "metadata": metadata}

    def _patch(self, plural: str, key: str, body: Json) -> None:
        before = self.objects[plural][key]
        if body["metadata"].get("resourceVersion") != before["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified; please apply your changes to the latest version")
        after = _merge(before, body)
        taints = [(each["key"], each["effect"]) for each in after["spec"].get("taints", ())]
        if len(set(taints)) < len(taints):
            raise ApiError(422, "taints must be unique by key and effect pair")
        if not all(_VALUE.fullmatch(each.get("value", "")) for each in after["spec"].get("taints", ())):
            raise ApiError(422, "a valid label must be an empty string or consist of alphanumeric characters")
        if not after["metadata"].get("annotations", True):
            del after["metadata"]["annotations"]
        self.objects[plural][key] = after
        self.touch(after)

    def _evict(self, pod: Json, body: Json) -> None:
        uid = body.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if uid not in (None, pod["metadata"]["uid"]):
            raise ApiError(409, "the UID in the precondition does not match the UID in record")
        budgets = [each for each in self.objects["poddisruptionbudgets"].values() if covers(each, pod)]
        if len(budgets) > 1:
            raise ApiError(500, "This pod has more than one PodDisruptionBudget, which eviction does not support.")
        for each in budgets:
            ready, needed = self.count_ready(each), each["spec"]["minAvailable"]
            if ready - self.is_ready(pod) < needed:
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                name = each["metadata"]["name"]
                cause = f"The disruption budget {name} needs {needed} healthy pods and has {ready} currently"
                raise ApiError(429, text, budget=cause)
        self.begin_deletion(pod)

    def _check_token(self, token: str) -> None:
        """Raise 401 for a token that EKS would not accept, or whose account has no access entry."""
        text = token.removeprefix(TOKEN_PREFIX)
        try:
            url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        except ValueError:
            raise ApiError(401, "Unauthorized") from None
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        is_signed = "x-k8s-aws-id" in query.get("X-Amz-SignedHeaders", "").split(";")
        is_right = token.startswith(TOKEN_PREFIX) and query.get("Action") == "GetCallerIdentity" and is_signed
        account = query.get("X-Amz-Credential", "").partition("/")[0][-12:]
        if not is_right or (self.accounts is not None and account not in self.accounts):
            raise ApiError(401, "Unauthorized")


def _merge(before: Any, patch: Any) -> Any:
    """Return a value after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        reply = self.server.cluster.answer(Request(self.command, self.path, body, token))
        if reply is None:
            self.close_connection = True
            return
        status, value = reply
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        with suppress(ConnectionError):  # the client was killed
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - names of the standard library


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster


@contextmanager
def serve(cluster: SimulatedCluster, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve a cluster on a port of the loopback interface, over HTTPS if there is a TLS context. Yield its address."""
    server = _Server(cluster)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
