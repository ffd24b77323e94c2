"""The client of the Kubernetes API: pages, tokens, versions, and what each failure means."""

import base64
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme

from holdfast import Conflict, EngineError, EngineUnavailable, HoldfastError, NotAllowed, NotFound, OutcomeUnknown
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.evacuate.actions.eks_nodes.kubernetes import CONFLICT_ATTEMPTS, NODES, KubernetesClient
from holdfast.simulate.aws.control_plane import ReplyLost
from holdfast.simulate.aws.region import ACCOUNT
from holdfast.simulate.kubernetes import ApiError, SimulatedCluster, build_token, serve
from holdfast.testing import FakeClock
from tests.unit.evacuate.fleet import ZONE

NODE = f"{NODES}/node-0"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster(clock: FakeClock) -> SimulatedCluster:
    found = SimulatedCluster(clock)
    for number in range(5):
        found.add_node(f"node-{number}", ZONE, "us-east-1a")
    found.add_pod("shop/web-1", "node-0", labels={"app": "web"})
    return found


@pytest.fixture
def client(cluster: SimulatedCluster, clock: FakeClock) -> Iterator[KubernetesClient]:
    with serve(cluster) as address:
        yield open_client(address, clock)


def open_client(address: str, clock: FakeClock, **options: Any) -> KubernetesClient:
    return KubernetesClient(
        address, cluster="shop", clock=clock, **{"get_token": lambda: build_token(ACCOUNT), **options}
    )


def mark(_: Any) -> dict[str, Any]:
    return {"spec": {"marked": True}}


def fail(status: int) -> Callable[[str], None]:
    def refuse(_: str) -> None:
        raise ApiError(status, "no")

    return refuse


def lose(_: str) -> None:
    raise ReplyLost


def test_lists_are_read_page_by_page(cluster: SimulatedCluster, client: KubernetesClient) -> None:
    cluster.page_size = 2
    assert [each["metadata"]["name"] for each in client.list(NODES)] == [f"node-{number}" for number in range(5)]
    assert list(cluster.calls) == ["GET nodes"] * 3
    assert client.list("/api/v1/pods", fieldSelector="spec.nodeName=node-1") == []


def test_a_token_is_used_for_ten_minutes_and_not_after_it_was_refused(
    cluster: SimulatedCluster, clock: FakeClock
) -> None:
    made = []

    def get_token() -> str:
        made.append(clock.monotonic())
        return build_token(ACCOUNT)

    with serve(cluster) as address:
        client = open_client(address, clock, get_token=get_token)
        for _ in range(3):
            client.get(NODE)
            clock.sleep(299)
        assert len(made) == 1
        client.get(NODE)
        assert len(made) == 2
        cluster.accounts = frozenset()
        with pytest.raises(NotAllowed):
            client.get(NODE)
        cluster.accounts = None
        client.get(NODE)
        assert len(made) == 3


@pytest.mark.parametrize("token", ["", "Bearer", "k8s-aws-v1.", "k8s-aws-v1.!", build_token("210987654321")])
def test_a_wrong_token_names_the_access_entry(cluster: SimulatedCluster, clock: FakeClock, token: str) -> None:
    cluster.accounts = frozenset({ACCOUNT})
    with serve(cluster) as address:
        client = open_client(address, clock, get_token=lambda: token)
        with pytest.raises(NotAllowed, match="aws eks create-access-entry --cluster-name shop --principal-arn"):
            client.list(NODES)


@pytest.mark.parametrize(
    ("fault", "read", "write"),
    [
        (fail(400), EngineError, EngineError),
        (fail(403), NotAllowed, NotAllowed),
        (fail(404), NotFound, NotFound),
        (fail(409), Conflict, Conflict),
        (fail(410), EngineUnavailable, EngineUnavailable),
        (fail(429), EngineUnavailable, EngineUnavailable),
        (fail(500), EngineUnavailable, OutcomeUnknown),
        (fail(503), EngineUnavailable, EngineUnavailable),
        (fail(504), EngineUnavailable, OutcomeUnknown),
        (lose, EngineUnavailable, OutcomeUnknown),
    ],
)
def test_failures_say_whether_a_write_may_have_been_made(
    cluster: SimulatedCluster,
    client: KubernetesClient,
    fault: Callable[[str], None],
    read: type[HoldfastError],
    write: type[HoldfastError],
) -> None:
    found = client.get(NODE)
    cluster.faults = fault
    with pytest.raises(read) as reading:
        client.get(NODE)
    assert type(reading.value) is read
    with pytest.raises(HoldfastError) as writing:
        client.update(NODE, found, mark)
    assert type(writing.value) is write
    assert "Kubernetes shop " in str(writing.value)


def test_a_cluster_that_cannot_be_reached_was_not_written(cluster: SimulatedCluster, clock: FakeClock) -> None:
    with serve(cluster) as address:
        found = open_client(address, clock).get(NODE)
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        open_client(address, clock).update(NODE, found, mark)


def test_an_update_is_built_again_from_the_changes_of_others(
    cluster: SimulatedCluster, client: KubernetesClient
) -> None:
    found = client.get(NODE)
    cluster.update("nodes", "node-0", lambda node: node["spec"].update(theirs=1))
    seen = []

    def build(node: Any) -> dict[str, Any]:
        seen.append(node["spec"].get("theirs"))
        return {"spec": {"ours": 1}}

    assert client.update(NODE, found, build)
    assert seen == [None, 1]
    assert cluster.copy("nodes")["node-0"]["spec"] == {"theirs": 1, "ours": 1}
    assert not client.update(NODE, client.get(NODE), lambda _: None)


def test_an_object_that_others_change_all_the_time_is_a_conflict(
    cluster: SimulatedCluster, client: KubernetesClient
) -> None:
    found = client.get(NODE)

    def interfere(call: str) -> None:
        if call == "PATCH nodes":
            cluster.update("nodes", "node-0", lambda node: None)

    cluster.faults = interfere
    with pytest.raises(Conflict, match="all the time"):
        client.update(NODE, found, mark)
    assert list(cluster.calls).count("PATCH nodes") == CONFLICT_ATTEMPTS


def test_an_eviction_tells_a_budget_from_throttling(cluster: SimulatedCluster, client: KubernetesClient) -> None:
    (pod,) = client.list("/api/v1/pods")
    cluster.add_budget("shop/web", {"app": "web"}, 1)
    assert client.evict(pod) == "The disruption budget web needs 1 healthy pods and has 1 currently"
    cluster.faults = fail(429)
    with pytest.raises(EngineUnavailable, match="throttled"):
        client.evict(pod)
    cluster.faults = lambda _: None
    cluster.add_budget("shop/second", {"app": "web"}, 0)
    with pytest.raises(OutcomeUnknown, match="more than one PodDisruptionBudget"):
        client.evict(pod)


def test_a_pod_that_is_gone_or_was_created_again_needs_no_eviction(
    cluster: SimulatedCluster, client: KubernetesClient
) -> None:
    (pod,) = client.list("/api/v1/pods")
    cluster.add_pod("shop/web-1", "node-1")
    assert client.evict(pod) == ""
    assert "deletionTimestamp" not in cluster.copy("pods")["shop/web-1"]["metadata"]
    del cluster.objects["pods"]["shop/web-1"]
    assert client.evict(pod) == ""


@contextmanager
def serve_tls(cluster: SimulatedCluster, authority: trustme.CA) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serve(cluster, tls=context) as address:
        yield address


def test_the_certificate_must_be_of_the_authority_of_the_cluster(cluster: SimulatedCluster, clock: FakeClock) -> None:
    ours, other = trustme.CA(), trustme.CA()
    with serve_tls(cluster, ours) as address:
        certificate = ours.cert_pem.bytes().decode()
        assert open_client(address, clock, certificate=certificate).get(NODE)["metadata"]["name"] == "node-0"
        for wrong in (other.cert_pem.bytes().decode(), ""):
            with pytest.raises(EngineError, match="check for a proxy"):
                open_client(address, clock, certificate=wrong).get(NODE)


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-west-1", "sts.eu-west-1.amazonaws.com"), ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn")],
)
def test_a_token_of_eks_is_a_signed_call_of_sts(monkeypatch: pytest.MonkeyPatch, region: str, host: str) -> None:
    """Its host is that of AWS, because the cluster accepts no other."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA123456789012")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with AwsSession(AwsOptions(region=region, endpoint_url="http://127.0.0.1:9")) as session:
        token = session.presign_eks_token("shop")
    text = token.removeprefix("k8s-aws-v1.")
    assert "=" not in token
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert (url.scheme, url.hostname, query["Action"]) == ("https", host, "GetCallerIdentity")
    assert (query["X-Amz-Expires"], query["X-Amz-SignedHeaders"]) == ("60", "host;x-k8s-aws-id")
