"""The EKS clusters of the accounts, and clients of their Kubernetes APIs.

A client is kept for as long as the cluster has the same endpoint. EKS is asked for the cluster before each use, because
a cluster may have been deleted, or created again with the same name.
"""

import threading
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast._clock import Clock
from holdfast._errors import HoldfastError, NotFound
from holdfast.evacuate.accounts import Account, Accounts
from holdfast.evacuate.actions.eks_nodes.kubernetes import KubernetesClient
from holdfast.evacuate.refusals import translate_refusals

if TYPE_CHECKING:
    from holdfast.engines.aws import AwsSession

PERMISSIONS = ("ec2:DescribeAvailabilityZones", "eks:DescribeCluster", "eks:ListClusters")
REFUSALS: Mapping[str, type[HoldfastError]] = {"ResourceNotFoundException": NotFound}
"""The errors for codes that EKS has."""


class Cluster(Struct, frozen=True, kw_only=True):
    """A cluster, as EKS describes it."""

    arn: str
    name: str
    endpoint: str
    """The address of its Kubernetes API; "" while the cluster is being created."""
    certificate: str
    """The certificate of the authority of the endpoint, as PEM."""
    has_zonal_shift: bool


class Clusters:
    """Clients of clusters. Thread-safe."""

    def __init__(self, accounts: Accounts, clock: Clock) -> None:
        self._accounts = accounts
        self._clock = clock
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[Cluster, KubernetesClient]] = {}

    def open(self, arn: str) -> KubernetesClient:
        """Return a client of the cluster with an ARN. Raise NotFound if EKS does not have it any more."""
        account = self._accounts.find(arn)
        return self.connect(account, describe_cluster(account.session, arn.rpartition("/")[2]))

    def connect(self, account: Account, cluster: Cluster) -> KubernetesClient:
        """Return a client of a cluster of an account."""
        with self._lock:
            known = self._clients.get(cluster.arn)
            if known is not None and known[0] == cluster:
                return known[1]
            client = KubernetesClient(
                cluster.endpoint,
                cluster=cluster.name,
                get_token=lambda: account.session.presign_eks_token(cluster.name),
                clock=self._clock,
                certificate=cluster.certificate,
            )
            self._clients[cluster.arn] = cluster, client
            return client


def list_clusters(session: "AwsSession") -> list[Cluster]:
    """Return all clusters of the account that have an endpoint."""
    found = []
    with translate_refusals(session, REFUSALS):
        names = list(session.paginate("eks", "list_clusters"))
    for name in names:
        try:
            cluster = describe_cluster(session, name)
        except NotFound:
            continue  # it was deleted meanwhile
        if cluster.endpoint:
            found.append(cluster)
    return found


def describe_cluster(session: "AwsSession", name: str) -> Cluster:
    """Return a cluster. Raise NotFound if it does not exist."""
    client = session.client("eks")
    with translate_refusals(session, REFUSALS):
        found = client.describe_cluster(name=name)["cluster"]
    return Cluster(
        arn=found["arn"],
        name=found["name"],
        endpoint=found.get("endpoint", ""),
        certificate=b64decode(found.get("certificateAuthority", {}).get("data", "")).decode(),
        has_zonal_shift=bool(found.get("zonalShiftConfig", {}).get("enabled")),
    )
