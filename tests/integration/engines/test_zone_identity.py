"""The zone of a process, from real HTTP servers in the place of metadata services, and from an emulator of EC2."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from holdfast import EngineUnavailable, HoldfastError, InvalidValue, NotFound, Zone
from holdfast.engines.aws import AwsOptions, AwsSession, FoundZone, ZoneFinder, ZoneOptions, ZoneSource, find_zone
from holdfast.testing import FakeClock
from tests.services.start import free_port
from tests.support.metadata import IMDS_TOKEN, IMDS_ZONE, MetadataServer, Respond, reply

ACCOUNT, OTHER_ACCOUNT = "123456789012", "210987654321"
LAMBDA = "GET /2026-01-15/metadata/execution-environment"
TASK_ARN = "arn:aws:ecs:us-east-1:{}:task/shop/0123456789abcdef"
QUICK = 0.15
"""Seconds for a timeout that a test waits for."""


@pytest.fixture(autouse=True)
def some_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with MetadataServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Emulator:
    """Opens sessions with an emulator of AWS, and counts them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.regions: list[str | None] = []

    def __call__(self, region: str | None) -> AwsSession:
        self.regions.append(region)
        return AwsSession(AwsOptions(region=region or "us-east-1", endpoint_url=self.url, max_attempts=1))


@pytest.fixture
def emulator(moto_url: str) -> Emulator:
    return Emulator(moto_url)


def unused(region: str | None) -> AwsSession:
    raise AssertionError(f"AWS was asked in {region}")


def finder(folder: Path, session: Any = unused, clock: Any = None, **options: Any) -> ZoneFinder:
    """Return a finder that knows of no platform but the one that the options say."""
    given: dict[str, Any] = {
        "environment": {},
        "imds_endpoints": (),
        "cache_directory": folder,
        "timeout": 5.0,
    } | options
    return ZoneFinder(ZoneOptions(**given), open_session=session, clock=clock)


def on_lambda(server: MetadataServer) -> dict[str, str]:
    return {"AWS_LAMBDA_METADATA_API": f"127.0.0.1:{server.port}", "AWS_LAMBDA_METADATA_TOKEN": "secret"}


def on_ecs(server: MetadataServer, name: str = "us-east-1a", account: str = ACCOUNT) -> dict[str, str]:
    task = json.dumps({"AvailabilityZone": name, "TaskARN": TASK_ARN.format(account), "Cluster": "shop"})
    server.on("GET /v4/0123/task", reply(task))
    return {"ECS_CONTAINER_METADATA_URI_V4": f"{server.url}/v4/0123"}


def failure(of: ZoneFinder, kind: type[HoldfastError] = NotFound) -> str:
    with pytest.raises(kind) as raised:
        of.find()
    return str(raised.value)


class TestSetting:
    @pytest.mark.parametrize("options", [{"zone": "rack-7"}, {"environment": {"HOLDFAST_AGENT__ZONE": "rack-7"}}])
    def test_a_zone_that_is_set_is_taken_and_nothing_is_asked(
        self, server: MetadataServer, folder: Path, options: dict[str, Any]
    ) -> None:
        found = finder(folder, imds_endpoints=(server.on_instance(reply("use1-az1")).url,), **options).find()
        assert found == FoundZone(zone=Zone("rack-7"), source=ZoneSource.SETTING)
        assert server.asked == []

    def test_a_name_that_is_set_is_refused(self, folder: Path) -> None:
        assert "us-east-1a is the name of a zone" in failure(finder(folder, zone="us-east-1a"), InvalidValue)

    def test_the_function_returns_the_zone_itself(self) -> None:
        assert find_zone(ZoneOptions(zone="use1-az1")) == Zone("use1-az1")

    def test_a_timeout_that_waits_for_ever_is_refused(self) -> None:
        with pytest.raises(InvalidValue, match="remote_timeout is 0"):
            ZoneOptions(remote_timeout=0)


class TestLambda:
    def test_the_metadata_endpoint_says_the_id(self, server: MetadataServer, folder: Path) -> None:
        server.on(LAMBDA, reply('{"AvailabilityZoneID": "use1-az1"}', Cache_Control="private, max-age=43200"))
        found = finder(folder, environment=on_lambda(server)).find()
        assert found == FoundZone(zone=Zone("use1-az1"), source=ZoneSource.LAMBDA, max_age=43_200.0)
        assert server.asked[0].headers["authorization"] == "Bearer secret"

    def test_an_answer_is_asked_for_again_when_its_age_is_over(self, server: MetadataServer, folder: Path) -> None:
        in_the_snapshot = reply('{"AvailabilityZoneID": "use1-az1"}', Cache_Control="max-age=5")
        restored = reply('{"AvailabilityZoneID": "use1-az2"}', Cache_Control="max-age=43200")
        server.on(LAMBDA, in_the_snapshot, restored)
        clock = FakeClock()
        own = finder(folder, clock=clock, environment=on_lambda(server))
        found = []
        for seconds in (0.0, 4.9, 0.1, 43_199.0):
            clock.advance(seconds)
            found.append(own.find().zone)
        assert found == ["use1-az1", "use1-az1", "use1-az2", "use1-az2"]
        assert len(server.asked) == 2

    def test_an_answer_that_has_expired_is_not_used_when_the_endpoint_fails(
        self, server: MetadataServer, folder: Path
    ) -> None:
        server.on(LAMBDA, reply('{"AvailabilityZoneID": "use1-az1"}'), reply("", 500))
        own = finder(folder, environment=on_lambda(server))
        assert own.find().zone == "use1-az1"
        assert "failed with 500" in failure(own, EngineUnavailable)

    def test_a_failure_is_tried_once_more(self, server: MetadataServer, folder: Path) -> None:
        server.on(LAMBDA, reply("", 503), reply('{"AvailabilityZoneID": "use1-az1"}'))
        assert finder(folder, environment=on_lambda(server)).find().zone == "use1-az1"

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (reply('{"AvailabilityZoneID": "us-east-1a"}'), "the answer is 'us-east-1a': expected an AZ-ID"),
            (reply("<html>"), "the answer cannot be read"),
            (reply("", 403), "answered 403: access is refused"),
            (reply("", 302), "answered 302"),
        ],
    )
    def test_an_answer_that_is_wrong_is_told(
        self, server: MetadataServer, folder: Path, answer: Respond, told: str
    ) -> None:
        text = failure(finder(folder, environment=on_lambda(server.on(LAMBDA, answer))))
        assert "(Lambda metadata: " in text
        assert told in text

    def test_without_the_token_nothing_is_asked(self, server: MetadataServer, folder: Path) -> None:
        variables = on_lambda(server) | {"AWS_LAMBDA_METADATA_TOKEN": ""}
        assert "AWS_LAMBDA_METADATA_TOKEN is not set" in failure(finder(folder, environment=variables))
        assert server.asked == []


class TestEcs:
    def test_the_name_of_a_task_is_mapped_to_its_id(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        found = finder(folder, emulator, environment=on_ecs(server)).find()
        assert found == FoundZone(zone=Zone("use1-az6"), source=ZoneSource.ECS_TASK, name="us-east-1a")
        assert emulator.regions == ["us-east-1"]

    @pytest.mark.parametrize(
        ("name", "zone"), [("cn-north-1b", "cnn1-az2"), ("us-gov-west-1c", "usgw1-az3"), ("us-west-2b", "usw2-az1")]
    )
    def test_the_region_of_the_name_is_asked_in_any_partition(
        self, server: MetadataServer, folder: Path, emulator: Emulator, name: str, zone: str
    ) -> None:
        assert finder(folder, emulator, environment=on_ecs(server, name)).find().zone == zone
        assert emulator.regions == [name[:-1]]

    def test_a_name_that_the_account_does_not_have_is_told(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        text = failure(finder(folder, emulator, environment=on_ecs(server, "us-east-1z")))
        assert f"account {ACCOUNT} has no zone us-east-1z in us-east-1: EC2 knows us-east-1a, us-east-1b" in text

    def test_credentials_of_another_account_are_not_asked_what_a_name_means(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        text = failure(finder(folder, emulator, environment=on_ecs(server, account=OTHER_ACCOUNT)))
        assert f"us-east-1a is a name of account {OTHER_ACCOUNT}, but the credentials belong to account" in text
        assert not folder.exists()

    def test_the_instance_knows_when_ec2_cannot_be_asked(self, server: MetadataServer, folder: Path) -> None:
        def no_access(region: str | None) -> AwsSession:
            return AwsSession(AwsOptions(region=region, endpoint_url=f"http://127.0.0.1:{free_port()}", max_attempts=1))

        server.on_instance(reply("use1-az1"))
        own = finder(folder, no_access, environment=on_ecs(server), imds_endpoints=(server.url,))
        assert own.find() == FoundZone(zone=Zone("use1-az1"), source=ZoneSource.EC2)

    def test_the_file_is_read_when_there_is_no_endpoint(self, folder: Path, tmp_path: Path, emulator: Emulator) -> None:
        file = tmp_path / "metadata.json"
        file.write_text(json.dumps({"AvailabilityZone": "us-east-1b", "MetadataFileStatus": "READY"}))
        found = finder(folder, emulator, environment={"ECS_CONTAINER_METADATA_FILE": str(file)}).find()
        assert found == FoundZone(zone=Zone("use1-az1"), source=ZoneSource.ECS_FILE, name="us-east-1b")

    def test_a_file_is_waited_for_until_it_is_complete(self, folder: Path, tmp_path: Path, emulator: Emulator) -> None:
        file = tmp_path / "metadata.json"
        steps = iter(["", '{"MetadataFileSt', '{"MetadataFileStatus": "READY", "AvailabilityZone": "us-east-1b"}'])

        class WritingClock(FakeClock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                file.write_text(next(steps))

        variables = {"ECS_CONTAINER_METADATA_FILE": str(file)}
        assert finder(folder, emulator, clock=WritingClock(), environment=variables).find().zone == "use1-az1"

    @pytest.mark.parametrize(
        ("content", "told"), [(None, "cannot be read: No such file"), ("{}", "MetadataFileStatus is not READY")]
    )
    def test_a_file_is_not_waited_for_for_ever(
        self, folder: Path, tmp_path: Path, content: str | None, told: str
    ) -> None:
        file = tmp_path / "metadata.json"
        if content is not None:
            file.write_text(content)
        own = finder(folder, clock=FakeClock(), environment={"ECS_CONTAINER_METADATA_FILE": str(file)})
        assert told in failure(own, EngineUnavailable)


class TestCache:
    def test_ec2_is_asked_once_for_all_zones_of_a_region(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        for name, zone, is_cached in (("us-east-1a", "use1-az6", False), ("us-east-1b", "use1-az1", True)):
            found = finder(folder, emulator, environment=on_ecs(server, name)).find()
            assert (found.zone, found.is_cached) == (zone, is_cached)
        assert len(emulator.regions) == 1
        assert [file.name for file in folder.iterdir()] == [f"zones-{ACCOUNT}-us-east-1.json"]

    @pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"us-east-1a": "us-east-1a"}', b'{"us-east-1b": "x"}'])
    def test_a_damaged_file_is_ignored_and_replaced(
        self, server: MetadataServer, folder: Path, emulator: Emulator, content: bytes
    ) -> None:
        folder.mkdir()
        file = folder / f"zones-{ACCOUNT}-us-east-1.json"
        file.write_bytes(content)
        assert finder(folder, emulator, environment=on_ecs(server)).find().zone == "use1-az6"
        assert json.loads(file.read_bytes())["us-east-1a"] == "use1-az6"

    def test_what_another_account_or_region_calls_a_zone_does_not_count(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        folder.mkdir()
        (folder / f"zones-{OTHER_ACCOUNT}-us-east-1.json").write_text('{"us-east-1a": "use1-az9"}')
        (folder / f"zones-{ACCOUNT}-us-east-2.json").write_text('{"us-east-1a": "use1-az9"}')
        assert finder(folder, emulator, environment=on_ecs(server)).find().zone == "use1-az6"

    def test_a_zone_that_is_new_to_the_file_is_asked_for(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        folder.mkdir()
        (folder / f"zones-{ACCOUNT}-us-east-1.json").write_text('{"us-east-1b": "use1-az1"}')
        assert not finder(folder, emulator, environment=on_ecs(server)).find().is_cached

    def test_a_folder_that_cannot_be_written_costs_only_another_request(
        self, server: MetadataServer, tmp_path: Path, emulator: Emulator
    ) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        for _ in range(2):
            assert finder(blocked / "cache", emulator, environment=on_ecs(server)).find().zone == "use1-az6"
        assert len(emulator.regions) == 2

    def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        (folder / f"zones-{ACCOUNT}-us-east-1.json").mkdir(parents=True)
        assert finder(folder, emulator, environment=on_ecs(server)).find().zone == "use1-az6"
        assert len(list(folder.iterdir())) == 1

    @pytest.mark.parametrize(
        ("variables", "path"),
        [
            ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/holdfast")),
            ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache/holdfast")),
            ({}, None),
        ],
    )
    def test_the_cache_is_where_programs_of_a_user_keep_theirs(
        self, variables: dict[str, str], path: Path | None
    ) -> None:
        assert ZoneOptions(environment=variables).cache_folder == path

    def test_a_user_without_a_home_has_no_cache(self, server: MetadataServer, emulator: Emulator) -> None:
        options = ZoneOptions(environment=on_ecs(server), imds_endpoints=())
        assert ZoneFinder(options, open_session=emulator).find().zone == "use1-az6"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class Cluster:
    """A Kubernetes API with one node, and the service account of a pod."""

    def __init__(self, server: MetadataServer, account: Path) -> None:
        self.server = server
        self.account = account
        self.variables = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "NODE_NAME": "ip-10-0-1-5.ec2.internal",
        }

    def label(self, **labels: str) -> None:
        names = {"id": "topology.k8s.aws/zone-id", "name": "topology.kubernetes.io/zone"}
        node = {"kind": "Node", "metadata": {"labels": {names[key]: value for key, value in labels.items()}}}
        self.server.on("GET /api/v1/nodes/ip-10-0-1-5.ec2.internal", reply(json.dumps(node)))


@pytest.fixture
def cluster(authority: trustme.CA, tmp_path: Path) -> Iterator[Cluster]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("pod-token\n")
    authority.cert_pem.write_to_path(account / "ca.crt")
    with MetadataServer(tls) as server:
        yield Cluster(server, account)


class TestKubernetes:
    def find(self, cluster: Cluster, folder: Path, session: Any = unused, **variables: str) -> ZoneFinder:
        return finder(folder, session, environment=cluster.variables | variables, service_account=cluster.account)

    def test_the_label_of_the_node_says_the_id(self, cluster: Cluster, folder: Path) -> None:
        cluster.label(id="use1-az4", name="us-east-1d")
        found = self.find(cluster, folder).find()
        assert found == FoundZone(zone=Zone("use1-az4"), source=ZoneSource.KUBERNETES, name="us-east-1d")
        assert cluster.server.asked[0].headers["authorization"] == "Bearer pod-token"

    def test_the_name_of_an_older_cluster_is_mapped_and_cached(
        self, cluster: Cluster, folder: Path, emulator: Emulator
    ) -> None:
        cluster.label(name="us-east-1d")
        found = [self.find(cluster, folder, emulator).find() for _ in range(2)]
        assert [(each.zone, each.name, each.is_cached) for each in found] == [
            ("use1-az4", "us-east-1d", False),
            ("use1-az4", "us-east-1d", True),
        ]

    def test_the_zone_of_another_cloud_is_told_and_nothing_is_asked(self, cluster: Cluster, folder: Path) -> None:
        cluster.label(name="europe-west1-b")
        assert "'europe-west1-b' is no zone of AWS" in failure(self.find(cluster, folder))

    def test_a_node_name_of_our_own_comes_first(self, cluster: Cluster, folder: Path) -> None:
        cluster.label(id="use1-az4")
        node = {"NODE_NAME": "?", "HOLDFAST_NODE_NAME": cluster.variables["NODE_NAME"]}
        assert self.find(cluster, folder, **node).find().zone == "use1-az4"

    def test_a_pod_that_does_not_know_its_node_is_told_how(self, cluster: Cluster, folder: Path) -> None:
        assert "set one of them to spec.nodeName" in failure(self.find(cluster, folder, NODE_NAME=""))

    def test_a_pod_without_the_right_is_told_which(self, cluster: Cluster, folder: Path) -> None:
        cluster.server.on("GET /api/v1/nodes/ip-10-0-1-5.ec2.internal", reply("{}", 403))
        assert "Allow the service account to `get` nodes" in failure(self.find(cluster, folder))

    @pytest.mark.parametrize("missing", ["token", "ca.crt"])
    def test_a_pod_without_a_service_account_is_told(self, cluster: Cluster, folder: Path, missing: str) -> None:
        (cluster.account / missing).unlink()
        assert "the pod has no service account in" in failure(self.find(cluster, folder))

    def test_a_server_with_another_certificate_gets_no_token(self, cluster: Cluster, folder: Path) -> None:
        trustme.CA().cert_pem.write_to_path(cluster.account / "ca.crt")
        cluster.label(id="use1-az4")
        assert "CERTIFICATE_VERIFY_FAILED" in failure(self.find(cluster, folder), EngineUnavailable)
        assert cluster.server.asked == []

    def test_an_address_of_version_six_is_put_in_brackets(self, cluster: Cluster, folder: Path) -> None:
        port = {"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": str(free_port())}
        assert f"https://[::1]:{port['KUBERNETES_SERVICE_PORT']}/api" in failure(
            self.find(cluster, folder, **port), EngineUnavailable
        )


class TestInstance:
    def test_a_token_is_asked_for_and_then_the_id(self, server: MetadataServer, folder: Path) -> None:
        server.on_instance(reply("use1-az1\n"))
        found = finder(folder, imds_endpoints=(server.url,)).find()
        assert found == FoundZone(zone=Zone("use1-az1"), source=ZoneSource.EC2)
        assert server.paths() == [f"PUT {IMDS_TOKEN}", f"GET {IMDS_ZONE}"]
        assert server.asked[0].headers["x-aws-ec2-metadata-token-ttl-seconds"] == "60"
        assert server.asked[1].headers["x-aws-ec2-metadata-token"] == "a-token"

    @pytest.mark.parametrize("zone", ["usw2-lax1-az1", "cnn1-az1", "usgw1-az3", "use1-wl1-bos-wlz1"])
    def test_zones_of_all_kinds_and_partitions_are_known(self, server: MetadataServer, folder: Path, zone: str) -> None:
        server.on_instance(reply(zone))
        assert finder(folder, imds_endpoints=(server.url,)).find().zone == zone

    def test_the_second_address_is_asked_when_the_first_does_not_answer(
        self, server: MetadataServer, folder: Path
    ) -> None:
        server.on_instance(reply("use1-az1"))
        closed = f"http://127.0.0.1:{free_port()}"
        assert finder(folder, imds_endpoints=(closed, server.url)).find().zone == "use1-az1"

    def test_the_variable_of_the_sdks_names_another_address(self, server: MetadataServer, folder: Path) -> None:
        server.on_instance(reply("use1-az1"))
        variables = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{server.url}/"}
        assert finder(folder, environment=variables).find().zone == "use1-az1"

    def test_no_proxy_is_asked(self, server: MetadataServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        server.on_instance(reply("use1-az1"))
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
        assert finder(folder, imds_endpoints=(server.url,)).find().zone == "use1-az1"

    def test_a_token_that_has_expired_is_replaced(self, server: MetadataServer, folder: Path) -> None:
        server.on_instance(reply("", 401), reply("use1-az1"))
        assert finder(folder, imds_endpoints=(server.url,)).find().zone == "use1-az1"
        assert server.paths().count(f"PUT {IMDS_TOKEN}") == 2

    def test_tokens_that_are_always_refused_are_told(self, server: MetadataServer, folder: Path) -> None:
        server.on_instance(reply("", 401))
        text = failure(finder(folder, imds_endpoints=(server.url,)), EngineUnavailable)
        assert "refuses the token that it has issued (401)" in text
        assert server.paths().count(f"PUT {IMDS_TOKEN}") == 2

    @pytest.mark.parametrize(
        ("token", "zone", "told", "kind"),
        [
            (reply("", 403), None, "answered 403: instance metadata is disabled", NotFound),
            (reply("", 404), None, "answered 404", NotFound),
            (reply("a"), reply("", 404), "answered 404", NotFound),
            (reply("a"), reply("us-east-1a"), "the answer is 'us-east-1a': expected an AZ-ID", NotFound),
            (reply("a"), reply("<html>sign in"), "the answer is '<html>sign in': expected an AZ-ID", NotFound),
            (reply("a"), reply(b"\xff\xfe"), "expected an AZ-ID", NotFound),
            (reply("a\r\nX-Other: b"), None, "cannot be asked: Invalid header value", NotFound),
            (reply("", 503), None, "failed with 503", EngineUnavailable),
        ],
    )
    def test_an_answer_that_is_wrong_is_told(
        self,
        server: MetadataServer,
        folder: Path,
        token: Respond,
        zone: Respond | None,
        told: str,
        kind: type[HoldfastError],
    ) -> None:
        server.on(f"PUT {IMDS_TOKEN}", token)
        if zone is not None:
            server.on(f"GET {IMDS_ZONE}", zone)
        text = failure(finder(folder, imds_endpoints=(server.url,)), kind)
        assert "EC2 instance metadata: " in text
        assert told in text

    def test_the_version_without_a_token_is_never_used(self, server: MetadataServer, folder: Path) -> None:
        server.on(f"GET {IMDS_ZONE}", reply("use1-az1"))
        assert "answered 404" in failure(finder(folder, imds_endpoints=(server.url,)))
        assert server.paths() == [f"PUT {IMDS_TOKEN}"]

    @pytest.mark.parametrize("way", ["hang", "drip"])
    @pytest.mark.parametrize("request_line", [f"PUT {IMDS_TOKEN}", f"GET {IMDS_ZONE}"])
    def test_a_service_that_never_ends_its_answer_is_given_up(
        self, server: MetadataServer, folder: Path, way: str, request_line: str
    ) -> None:
        """As in a container, where the hop limit swallows the answer. Waits for two short timeouts."""
        server.on_instance(reply("use1-az1")).on(request_line, getattr(server, way))
        text = failure(finder(folder, imds_endpoints=(server.url,), timeout=QUICK))
        assert "did not answer in" in text
        assert "set the hop limit of instance metadata to 2" in text

    def test_several_addresses_that_hang_are_tried_within_two_timeouts(
        self, server: MetadataServer, folder: Path
    ) -> None:
        server.on(f"PUT {IMDS_TOKEN}", server.hang)
        finder_of_three = finder(folder, imds_endpoints=(server.url,) * 3, timeout=QUICK)
        assert "did not answer" in failure(finder_of_three)
        assert len(server.asked) <= 2 + 1  # the third may still begin with a rest of the time

    def test_a_slow_answer_counts_if_it_is_in_time(self, server: MetadataServer, folder: Path) -> None:
        release = threading.Event()

        def slowly(handler: BaseHTTPRequestHandler) -> None:
            release.wait(0.05)
            reply("use1-az1")(handler)

        server.on_instance(slowly)
        assert finder(folder, imds_endpoints=(server.url,)).find().zone == "use1-az1"

    def test_something_that_is_not_http_is_told(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                for _ in range(2):
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

            thread = threading.Thread(target=serve)
            thread.start()
            text = failure(finder(folder, imds_endpoints=(f"http://127.0.0.1:{listener.getsockname()[1]}",)))
            thread.join()
        assert "does not answer (SSH-2.0" in text

    def test_an_answer_that_is_far_too_long_is_not_read_to_its_end(self, server: MetadataServer, folder: Path) -> None:
        server.on_instance(reply(b"x" * (5 * 1024 * 1024)))
        assert "more than 4194304 bytes" in failure(finder(folder, imds_endpoints=(server.url,)))

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({"AWS_EC2_METADATA_DISABLED": "True"}, "AWS_EC2_METADATA_DISABLED is true"),
            ({"AWS_LAMBDA_FUNCTION_NAME": "f"}, "Lambda and Fargate have no instance metadata"),
            ({"AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}, "Lambda and Fargate have no instance metadata"),
        ],
    )
    def test_where_there_is_none_it_is_not_asked(
        self, server: MetadataServer, folder: Path, variables: dict[str, str], told: str
    ) -> None:
        assert told in failure(finder(folder, environment=variables, imds_endpoints=(server.url,)))
        assert server.asked == []

    @pytest.mark.parametrize("address", ["ftp://127.0.0.1", "127.0.0.1", "http://127.0.0.1:port", "http://[::1"])
    def test_an_address_that_is_none_is_told(self, folder: Path, address: str) -> None:
        assert f"address '{address}" in failure(finder(folder, imds_endpoints=(address,)))


@pytest.fixture
def interface(moto_url: str) -> tuple[str, str]:
    """The VPC of a network interface in us-east-1b, and its address."""
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=moto_url)) as session:
        ec2 = session.client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24", AvailabilityZone="us-east-1b")["Subnet"]
        created = ec2.create_network_interface(SubnetId=subnet["SubnetId"], PrivateIpAddress="10.9.1.7")
        return vpc, created["NetworkInterface"]["PrivateIpAddress"]


@pytest.fixture
def with_ids(moto_url: str) -> Iterator[str]:
    """The emulator behind a proxy that adds what it lacks: AZ-IDs of network interfaces, and a Local Zone."""
    with EditingProxy(moto_url, edit_ec2) as proxy:
        yield proxy.url


def edit_ec2(body: bytes) -> bytes:
    local = b"<item><zoneName>us-east-1-bos-1a</zoneName><zoneId>use1-bos1-az1</zoneId></item>"
    odd = b"<item><zoneName>us-east-1-new</zoneName></item>"
    named = b"<availabilityZone>us-east-1b</availabilityZone>"
    body = body.replace(b"<availabilityZoneInfo>", b"<availabilityZoneInfo>" + local + odd)
    return body.replace(named, named + b"<availabilityZoneId>use1-az1</availabilityZoneId>")


class EditingProxy:
    """Hands requests on to a server, and changes its answers."""

    def __init__(self, target: str, edit: Callable[[bytes], bytes]) -> None:
        host = target.removeprefix("http://")

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                connection = HTTPConnection(host, timeout=10)
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                connection.request(self.command, self.path, sent, dict(self.headers.items()))
                answer = connection.getresponse()
                kind = answer.headers["Content-Type"]
                reply(edit(answer.read()), answer.status, Content_Type=kind)(self)
                connection.close()

            do_GET = do_POST  # noqa: N815 - called by this name

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "EditingProxy":
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class TestNetworkInterface:
    def test_the_name_of_its_zone_is_mapped(
        self, server: MetadataServer, folder: Path, emulator: Emulator, interface: tuple[str, str]
    ) -> None:
        vpc, address = interface
        server.on("GET /live", reply(json.dumps({"address": address, "vpc": vpc})))
        found = finder(folder, emulator, address_endpoint=f"{server.url}/live").find()
        assert found == FoundZone(zone=Zone("use1-az1"), source=ZoneSource.NETWORK_INTERFACE, name="us-east-1b")

    def test_its_id_needs_no_mapping(
        self, server: MetadataServer, folder: Path, with_ids: str, interface: tuple[str, str]
    ) -> None:
        vpc, address = interface
        server.on("GET /live", reply(json.dumps({"address": address, "vpc": vpc})))
        variables = {"HOLDFAST_AWS__ADDRESS_ENDPOINT": f"{server.url}/live", "AWS_LAMBDA_FUNCTION_NAME": "f"}
        found = finder(folder, Emulator(with_ids), environment=variables).find()
        assert (found.zone, found.is_cached) == ("use1-az1", False)
        assert not folder.exists()

    def test_an_endpoint_that_answers_plain_text_leaves_the_vpc_to_the_function(
        self, server: MetadataServer, folder: Path, emulator: Emulator, interface: tuple[str, str]
    ) -> None:
        _, address = interface
        server.on("GET /", reply(f"{address}\n"))
        variables = {"AWS_LAMBDA_FUNCTION_NAME": "no-such-function"}
        text = failure(finder(folder, emulator, environment=variables, address_endpoint=server.url))
        assert "AWS refused lambda:GetFunctionConfiguration" in text

    def test_the_vpc_of_the_function_tells_equal_addresses_apart(
        self, server: MetadataServer, folder: Path, emulator: Emulator, interface: tuple[str, str], moto_url: str
    ) -> None:
        vpc, address = interface
        with AwsSession(AwsOptions(region="us-east-1", endpoint_url=moto_url)) as session:
            ec2 = session.client("ec2")
            other = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
            subnet = ec2.create_subnet(VpcId=other, CidrBlock="10.9.1.0/24", AvailabilityZone="us-east-1c")["Subnet"]
            ec2.create_network_interface(SubnetId=subnet["SubnetId"], PrivateIpAddress=address)
            function = create_function(session, vpc, f"in-{vpc}")
        server.on("GET /", reply(address))
        own = finder(folder, emulator, address_endpoint=server.url)
        assert "in any VPC belongs to network interfaces in" in failure(own)
        variables = {"AWS_LAMBDA_FUNCTION_NAME": function}
        # The emulator says that every function is in this VPC.
        with EditingProxy(moto_url, lambda body: body.replace(b"vpc-123abc", vpc.encode())) as proxy:
            own = finder(folder, Emulator(proxy.url), environment=variables, address_endpoint=server.url)
            assert own.find().zone == "use1-az1"

    def test_an_address_that_no_interface_has_is_told(
        self, server: MetadataServer, folder: Path, emulator: Emulator
    ) -> None:
        server.on("GET /", reply("192.0.2.1"))
        text = failure(finder(folder, emulator, address_endpoint=server.url))
        assert "192.0.2.1 in any VPC belongs to network interfaces in 0 zones" in text

    def test_an_answer_that_is_no_address_is_told(self, server: MetadataServer, folder: Path) -> None:
        server.on("GET /", reply("<html>"))
        assert "expected an address such as 10.0.1.5" in failure(finder(folder, address_endpoint=server.url))

    def test_a_local_zone_is_mapped_and_a_zone_without_an_id_does_not_matter(
        self, server: MetadataServer, folder: Path, with_ids: str
    ) -> None:
        found = finder(folder, Emulator(with_ids), environment=on_ecs(server, "us-east-1-bos-1a")).find()
        assert found.zone == "use1-bos1-az1"
        assert "us-east-1-new" not in (folder / f"zones-{ACCOUNT}-us-east-1.json").read_text()


def create_function(session: AwsSession, vpc: str, name: str) -> str:
    ec2, iam = session.client("ec2"), session.client("iam")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    [subnet] = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["Subnets"]
    [group] = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    session.client("lambda").create_function(
        FunctionName=name,
        Role=role,
        Runtime="provided.al2023",
        Handler="f",
        Code={"ZipFile": b""},
        VpcConfig={"SubnetIds": [subnet["SubnetId"]], "SecurityGroupIds": [group["GroupId"]]},
    )
    return name


class TestOrder:
    def test_each_platform_comes_before_the_next(
        self, server: MetadataServer, cluster: Cluster, folder: Path, tmp_path: Path, emulator: Emulator
    ) -> None:
        file = tmp_path / "metadata.json"
        file.write_text(json.dumps({"AvailabilityZone": "us-east-1c", "MetadataFileStatus": "READY"}))
        cluster.label(id="use1-az4")
        server.on(LAMBDA, reply('{"AvailabilityZoneID": "use1-az9"}')).on_instance(reply("use1-az5"))
        platforms = {
            ZoneSource.LAMBDA: on_lambda(server),
            ZoneSource.ECS_TASK: on_ecs(server),
            ZoneSource.ECS_FILE: {"ECS_CONTAINER_METADATA_FILE": str(file)},
            ZoneSource.KUBERNETES: cluster.variables,
            ZoneSource.EC2: {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url},
        }
        found = []
        while platforms:
            variables = {name: value for each in platforms.values() for name, value in each.items()}
            own = finder(folder, emulator, environment=variables, service_account=cluster.account)
            found.append(own.find().source)
            del platforms[found[-1]]
        assert found == list(ZoneSource)[1:-1]

    def test_without_any_source_the_error_names_all_of_them(self, folder: Path) -> None:
        closed = f"http://127.0.0.1:{free_port()}"
        text = failure(finder(folder, imds_endpoints=(closed,)))
        for told in (
            "Lambda metadata: AWS_LAMBDA_METADATA_API is not set",
            "ECS task metadata: ECS_CONTAINER_METADATA_URI_V4 is not set",
            "ECS metadata file: ECS_CONTAINER_METADATA_FILE is not set",
            "Kubernetes node labels: KUBERNETES_SERVICE_HOST is not set",
            f"EC2 instance metadata: {closed}/latest/api/token does not answer ([Errno 111] Connection refused)",
            "network interface: aws.address_endpoint is not set",
            "Set HOLDFAST_AGENT__ZONE to it, such as use1-az1; commands also read agent.zone in the settings",
        ):
            assert told in text

    def test_a_failure_is_not_remembered(self, server: MetadataServer, folder: Path) -> None:
        own = finder(folder, imds_endpoints=(server.url,))
        assert "answered 404" in failure(own)
        server.on_instance(reply("use1-az1"))
        assert own.find().zone == "use1-az1"
        assert own.find() is own.find()


def run_without_boto3(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules['boto3'] = None\nfrom holdfast.engines.aws import find_zone\n{script}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


class TestWithoutBoto3:
    def test_metadata_is_read(self, server: MetadataServer) -> None:
        server.on(LAMBDA, reply('{"AvailabilityZoneID": "use1-az1"}'))
        assert run_without_boto3("print(find_zone())", **on_lambda(server)).stdout == "use1-az1\n"

    def test_a_name_cannot_be_mapped_and_the_error_says_what_to_install(self, server: MetadataServer) -> None:
        ran = run_without_boto3("find_zone()", **on_ecs(server))
        assert "ECS task metadata: the AWS engine needs the extra 'aws': pip install" in ran.stderr
