"""Endpoints that are kept in AWS, over real HTTP on two emulators."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from holdfast import EngineError, EngineUnavailable, InvalidValue, NotAllowed, SettingsError, Zone
from holdfast.calls.endpoints import Endpoints
from holdfast.calls.resolvers import CloudMapResolver, DynamoDbResolver, ParameterStoreResolver, RefreshingEndpointCache
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.testing import FakeClock
from tests.services.start import free_port
from tests.table import sampled

ONE, TWO = Zone("use1-az1"), Zone("use1-az2")
Open = Callable[[str], AwsSession]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


@pytest.fixture
def connect() -> Iterator[Open]:
    opened: list[AwsSession] = []

    def connect(url: str) -> AwsSession:
        opened.append(AwsSession(AwsOptions(region="us-east-1", endpoint_url=url, max_attempts=1)))
        return opened[-1]

    yield connect
    for session in opened:
        session.close()


@pytest.fixture(params=sampled(["moto_url", "ministack_url"]))
def emulator(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def session(emulator: str, connect: Open) -> AwsSession:
    return connect(emulator)


@pytest.fixture
def name() -> str:
    return f"pricing-{uuid4().hex[:12]}"


# Cloud Map


class Registry:
    """A service of Cloud Map, to register instances with."""

    def __init__(self, session: AwsSession, name: str) -> None:
        self._client = session.client("servicediscovery")
        operation = self._client.create_http_namespace(Name=f"{name}-shop")["OperationId"]
        namespace = self._client.get_operation(OperationId=operation)["Operation"]["Targets"]["NAMESPACE"]
        self._service = self._client.create_service(Name=name, NamespaceId=namespace)["Service"]["Id"]

    def add(self, instance: str, **attributes: str) -> None:
        self._client.register_instance(ServiceId=self._service, InstanceId=instance, Attributes=attributes)

    def remove(self, instance: str) -> None:
        self._client.deregister_instance(ServiceId=self._service, InstanceId=instance)

    def fail(self, instance: str) -> None:
        self._client.update_instance_custom_health_status(
            ServiceId=self._service, InstanceId=instance, Status="UNHEALTHY"
        )


@pytest.fixture
def registry(session: AwsSession, name: str) -> Registry:
    return Registry(session, name)


def cloud_map(session: AwsSession, name: str, **options: Any) -> CloudMapResolver:
    # One of the emulators knows only the simple ways to ask for health.
    return CloudMapResolver(session=session, namespace=f"{name}-shop", service=name, **{"health": "ALL", **options})


def instance(host: str, zone: Zone | str, port: str = "8080") -> dict[str, str]:
    return {"AWS_INSTANCE_IPV4": host, "AWS_INSTANCE_PORT": port, "AVAILABILITY_ZONE_ID": zone}


def test_registered_instances_are_found_in_their_zones(session: AwsSession, registry: Registry, name: str) -> None:
    registry.add("i-2", **instance("10.0.1.2", ONE))
    registry.add("i-1", **instance("10.0.1.1", ONE))
    registry.add("i-3", **instance("10.0.2.1", TWO, "8081"))
    assert cloud_map(session, name, address="http://{host}:{port}").resolve() == {
        ONE: ["http://10.0.1.1:8080", "http://10.0.1.2:8080"],
        TWO: ["http://10.0.2.1:8081"],
    }


def test_names_of_zones_are_taken_for_the_ids_that_they_have_in_this_account(
    session: AwsSession, registry: Registry, name: str
) -> None:
    registry.add("task", AWS_INSTANCE_IPV4="10.0.1.1", AWS_INSTANCE_PORT="80", AVAILABILITY_ZONE="us-east-1a")
    found = cloud_map(session, name, zone_attribute="AVAILABILITY_ZONE", zone_ids={"us-east-1a": "use1-az1"})
    assert found.resolve() == {ONE: ["10.0.1.1:80"]}


def test_hosts_may_be_numbers_of_ipv6_or_names_and_share_one_port(
    session: AwsSession, registry: Registry, name: str
) -> None:
    registry.add("six", AWS_INSTANCE_IPV6="2001:db8::1", AVAILABILITY_ZONE_ID=ONE)
    registry.add("name", AWS_INSTANCE_CNAME="one.internal", AVAILABILITY_ZONE_ID=ONE)
    assert cloud_map(session, name, port=80).resolve() == {ONE: ["[2001:db8::1]:80", "one.internal:80"]}


def test_an_instance_that_cannot_be_placed_is_left_out_with_one_warning(
    session: AwsSession, registry: Registry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add("good", **instance("10.0.1.1", ONE))
    registry.add("nowhere", AWS_INSTANCE_IPV4="10.0.1.2", AWS_INSTANCE_PORT="80")
    registry.add("named", **instance("10.0.1.3", "us-east-1a"))
    registry.add("nobody", AWS_INSTANCE_PORT="80", AVAILABILITY_ZONE_ID=ONE)
    registry.add("portless", AWS_INSTANCE_IPV4="10.0.1.4", AVAILABILITY_ZONE_ID=ONE)
    resolver = cloud_map(session, name)
    assert [resolver.resolve() for _ in range(2)] == [{ONE: ["10.0.1.1:8080"]}] * 2
    told = sorted(message.partition(" of ")[0] for message in caplog.messages)
    assert told == ["instance named", "instance nobody", "instance nowhere", "instance portless"]
    assert "has no AVAILABILITY_ZONE_ID" in caplog.text
    assert "us-east-1a is the name of a zone" in caplog.text


def test_an_instance_that_was_gone_in_the_meantime_is_warned_of_again(
    session: AwsSession, registry: Registry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add("good", **instance("10.0.1.1", ONE))
    resolver = cloud_map(session, name)
    for _ in range(2):
        registry.add("nowhere", AWS_INSTANCE_IPV4="10.0.1.2", AWS_INSTANCE_PORT="80")
        resolver.resolve()
        registry.remove("nowhere")
        resolver.resolve()
        assert resolver._warned == set(), "instances come and go: what is remembered must not grow"
    assert len(caplog.messages) == 2


def test_only_healthy_instances_are_asked_for_unless_none_is(moto_url: str, connect: Open, name: str) -> None:
    session = connect(moto_url)
    registry = Registry(session, name)
    registry.add("i-1", **instance("10.0.1.1", ONE))
    registry.add("i-2", **instance("10.0.1.2", ONE))
    resolver = CloudMapResolver(session=session, namespace=f"{name}-shop", service=name)
    registry.fail("i-1")
    assert resolver.resolve() == {ONE: ["10.0.1.2:8080"]}
    registry.fail("i-2")
    assert resolver.resolve() == {ONE: ["10.0.1.1:8080", "10.0.1.2:8080"]}


def test_a_service_or_namespace_that_is_not_there_says_what_to_check(
    session: AwsSession, registry: Registry, name: str
) -> None:
    with pytest.raises(SettingsError, match="Cloud Map has no service other"):
        CloudMapResolver(session=session, namespace=f"{name}-shop", service="other").resolve()
    with pytest.raises(SettingsError, match="in a namespace other"):
        CloudMapResolver(session=session, namespace="other", service=name).resolve()


def test_an_address_without_a_host_is_refused_before_anybody_is_asked(session: AwsSession) -> None:
    with pytest.raises(InvalidValue, match="address is"):
        cloud_map(session, "pricing", address="http://{zone}")


# Parameter Store


def put(session: AwsSession, path: str, value: str, kind: str = "String") -> None:
    session.client("ssm").put_parameter(Name=path, Value=value, Type=kind)


def test_parameters_have_the_endpoints_of_a_zone_each(session: AwsSession, name: str) -> None:
    put(session, f"/{name}/endpoints/use1-az1", "http://10.0.1.1, http://10.0.1.2,")
    put(session, f"/{name}/endpoints/use1-az2", json.dumps(["http://10.0.2.1"]))
    put(session, f"/{name}/endpoints/use1-az3", "http://10.0.3.1,http://10.0.3.2", "StringList")
    put(session, f"/{name}/endpoints/use1-az4", "[]")
    put(session, f"/{name}/endpoints/deeper/use1-az5", "http://10.0.5.1")
    put(session, f"/{name}/use1-az6", "http://10.0.6.1")
    assert ParameterStoreResolver(session, f"/{name}/endpoints/").resolve() == {
        "use1-az1": ["http://10.0.1.1", "http://10.0.1.2"],
        "use1-az2": ["http://10.0.2.1"],
        "use1-az3": ["http://10.0.3.1", "http://10.0.3.2"],
        "use1-az4": [],
    }


def test_more_parameters_than_fit_on_a_page_are_all_found(session: AwsSession, name: str) -> None:
    for number in range(12):
        put(session, f"/{name}/use1-az{number}", f"http://10.0.{number}.1")
    assert len(ParameterStoreResolver(session, f"/{name}").resolve()) == 12


@pytest.mark.parametrize(
    ("zone", "value", "kind", "message"),
    [
        ("use1-az1", "[1]", "String", ": Expected `str`, got `int`"),
        ("use1-az1", '["http://10.0.1.1"', "String", ": Input data was truncated"),
        ("us-east-1a", "http://10.0.1.1", "String", ": us-east-1a is the name of a zone"),
        ("use1-az1", "http://10.0.1.1", "SecureString", " is encrypted: expected a String or a StringList"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_an_error_as_a_whole(
    zone: str, value: str, kind: str, message: str, session: AwsSession, name: str
) -> None:
    put(session, f"/{name}/{zone}", value, kind)
    put(session, f"/{name}/use1-az2", "http://10.0.2.1")
    with pytest.raises(InvalidValue, match=f"parameter /{name}/{zone}{message}"):
        ParameterStoreResolver(session, f"/{name}").resolve()


@pytest.mark.parametrize("path", ["", "/", "pricing/endpoints"])
def test_a_path_that_is_none_is_refused(path: str, session: AwsSession) -> None:
    with pytest.raises(InvalidValue, match="expected a path such as /pricing/endpoints"):
        ParameterStoreResolver(session, path)


# DynamoDB

KEYS = ("Service", "AZ-ID")


def create_table(session: AwsSession, table: str, keys: tuple[str, str] = KEYS) -> None:
    session.client("dynamodb").create_table(
        TableName=table,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=True)],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )


def add_item(session: AwsSession, table: str, service: str, zone: str, **attributes: Mapping[str, Any]) -> None:
    item = {"Service": {"S": service}, "AZ-ID": {"S": zone}, **attributes}
    session.client("dynamodb").put_item(TableName=table, Item=item)


def test_items_have_the_endpoints_of_a_service_in_a_zone_each(session: AwsSession, name: str) -> None:
    create_table(session, name)
    add_item(session, name, "pricing", ONE, Endpoints={"L": [{"S": "http://10.0.1.2"}, {"S": "http://10.0.1.1"}]})
    add_item(session, name, "pricing", TWO, Endpoints={"SS": ["http://10.0.2.2", "http://10.0.2.1"]})
    add_item(session, name, "orders", ONE, Endpoints={"L": [{"S": "http://10.1.1.1"}]})
    assert DynamoDbResolver(session, name, "pricing").resolve() == {
        ONE: ["http://10.0.1.2", "http://10.0.1.1"],
        TWO: ["http://10.0.2.1", "http://10.0.2.2"],
    }
    assert DynamoDbResolver(session, name, "nobody").resolve() == {}


def test_keys_and_attribute_may_be_called_otherwise(session: AwsSession, name: str) -> None:
    create_table(session, name, ("app", "zone"))
    item = {"app": {"S": "pricing"}, "zone": {"S": ONE}, "hosts": {"L": [{"S": "a"}]}}
    session.client("dynamodb").put_item(TableName=name, Item=item)
    resolver = DynamoDbResolver(session, name, "pricing", service_key="app", zone_key="zone", attribute="hosts")
    assert resolver.resolve() == {ONE: ["a"]}


@pytest.mark.parametrize(
    ("zone", "attributes", "message"),
    [
        (ONE, {}, "Endpoints of pricing in use1-az1 is None: expected a list or a set of strings"),
        (ONE, {"Endpoints": {"S": "http://10.0.1.1"}}, "expected a list or a set"),
        (ONE, {"Endpoints": {"L": [{"N": "1"}]}}, "expected a list or a set"),
        ("us-east-1a", {"Endpoints": {"L": [{"S": "a"}]}}, "us-east-1a is the name of a zone"),
    ],
)
def test_an_item_that_makes_no_sense_is_an_error_as_a_whole(
    zone: str, attributes: dict[str, Any], message: str, session: AwsSession, name: str
) -> None:
    create_table(session, name)
    add_item(session, name, "pricing", zone, **attributes)
    add_item(session, name, "pricing", TWO, Endpoints={"L": [{"S": "a"}]})
    with pytest.raises(InvalidValue, match=message):
        DynamoDbResolver(session, name, "pricing").resolve()


def test_a_table_that_is_not_there_says_what_to_do(session: AwsSession, name: str) -> None:
    with pytest.raises(SettingsError, match=f"there is no DynamoDB table {name}.*keys Service and AZ-ID"):
        DynamoDbResolver(session, name, "pricing").resolve()


def test_a_table_with_other_keys_is_an_error_that_names_it(session: AwsSession, name: str) -> None:
    create_table(session, name, ("app", "zone"))
    with pytest.raises(EngineError, match=f"DynamoDB refused the look-up of pricing in {name}"):
        DynamoDbResolver(session, name, "pricing").resolve()


# What they have in common


def resolvers(session: AwsSession) -> list[CloudMapResolver | ParameterStoreResolver | DynamoDbResolver]:
    return [
        cloud_map(session, "pricing"),
        ParameterStoreResolver(session, "/pricing/endpoints"),
        DynamoDbResolver(session, "endpoints", "pricing"),
    ]


def test_a_service_that_is_away_can_be_asked_later(connect: Open) -> None:
    for resolver in resolvers(connect(f"http://127.0.0.1:{free_port()}")):
        with pytest.raises(EngineUnavailable, match="cannot be reached"):
            resolver.resolve()


def test_a_policy_that_forbids_it_is_told_what_to_allow(answering: Callable[[bytes], str], connect: Open) -> None:
    allowed = ["servicediscovery:DiscoverInstances", "ssm:GetParametersByPath", "dynamodb:Query"]
    for number, words in enumerate(allowed):
        session = connect(answering(refusal("AccessDeniedException")))
        with pytest.raises(NotAllowed, match=f"(?i)allow {words}$"):
            resolvers(session)[number].resolve()


def test_another_refusal_says_who_refused_what(answering: Callable[[bytes], str], connect: Open) -> None:
    said = ["Cloud Map refused the look-up of pricing", "Parameter Store refused the look-up", "DynamoDB refused"]
    for number, words in enumerate(said):
        session = connect(answering(refusal("ValidationException")))
        with pytest.raises(EngineError, match=words):
            resolvers(session)[number].resolve()


def refusal(code: str) -> bytes:
    body = json.dumps({"__type": code, "message": "no"})
    return (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/x-amz-json-1.1\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def test_calls_follow_what_is_registered_and_stay_when_it_is_all_taken_away(
    session: AwsSession, registry: Registry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.calls")
    registry.add("i-1", **instance("10.0.1.1", ONE))
    with RefreshingEndpointCache(cloud_map(session, name), clock=FakeClock(), name="pricing") as known:
        endpoints = Endpoints(known)
        assert endpoints.next() == (ONE, "10.0.1.1:8080")
        registry.add("i-2", **instance("10.0.2.1", TWO))
        assert known.refresh()
        assert {endpoints.next().address for _ in range(2)} == {"10.0.1.1:8080", "10.0.2.1:8080"}
        registry.remove("i-1")
        assert known.refresh()
        assert {endpoints.next().address for _ in range(2)} == {"10.0.2.1:8080"}
        registry.remove("i-2")
        assert not known.refresh()
        assert endpoints.next().address == "10.0.2.1:8080"
    [warning] = caplog.messages
    assert warning.startswith("cannot look up the endpoints of pricing, trying again in ")
    assert warning.endswith(" s: EngineUnavailable: the resolver returned no endpoints")
