"""Where the endpoints of a service are found, as far as no server has to be asked."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from holdfast import EngineUnavailable, InvalidValue, Zone
from holdfast.calls.resolvers import (
    DnsResolver,
    EndpointCache,
    FunctionResolver,
    PatternResolver,
    Resolver,
    StaticResolver,
)
from holdfast.calls.resolvers.resolver import check_template, format_address, normalize

ONE, TWO = Zone("use1-az1"), Zone("use1-az2")


class Names:
    """DNS as a test has it: addresses by name, or how looking one up fails."""

    def __init__(self, **names: list[str] | Exception) -> None:
        self.names = {name.replace("_", "-") + ".internal": found for name, found in names.items()}
        self.asked: list[tuple[Any, ...]] = []

    def look_up(self, *asked: Any) -> list[tuple[Any, ...]]:
        self.asked.append(asked)
        found = self.names[asked[0]]
        if isinstance(found, Exception):
            raise found
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, asked[1])) for host in found]


# Lists and patterns


def test_a_list_is_what_it_was_when_it_was_given() -> None:
    given = {ONE: ["a", "b", "a"]}
    listed = StaticResolver(given)
    given[ONE].append("c")
    assert listed.resolve() == listed.current() == {ONE: ("a", "b")}


def test_a_list_cannot_be_changed_by_who_reads_it() -> None:
    with pytest.raises(TypeError):
        StaticResolver({ONE: ["a"]}).current()[ONE] = ["b"]  # type: ignore[index]


def test_one_address_in_the_place_of_a_list_of_them_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"endpoints of zone use1-az1 are 'http://a': expected a list"):
        normalize({ONE: "http://a"})


def test_a_pattern_has_one_address_in_each_zone() -> None:
    pattern = PatternResolver("https://{zone}.pricing.internal", zones=["use1-az1", "use1-az2", "use1-az1"])
    assert pattern.resolve() == {
        ONE: ("https://use1-az1.pricing.internal",),
        TWO: ("https://use1-az2.pricing.internal",),
    }


@pytest.mark.parametrize(
    ("pattern", "zones", "message"),
    [
        ("https://pricing.internal", ["use1-az1"], r"expected \{zone\} in it"),
        ("https://{zone}.{region}", ["use1-az1"], r"expected text with \{zone\}, and no other braces"),
        ("https://{zone", ["use1-az1"], "no other braces"),
        ("https://{}", ["use1-az1"], "no other braces"),
        ("https://{zone.real}", ["use1-az1"], "no other braces"),
        ("https://{zone}", [], "no zones: expected at least one AZ-ID"),
        ("https://{zone}", ["us-east-1a"], "us-east-1a is the name of a zone"),
    ],
)
def test_a_pattern_that_makes_no_addresses_is_refused(pattern: str, zones: list[str], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        PatternResolver(pattern, zones)


def test_a_function_is_asked_each_time() -> None:
    answers = iter([{ONE: ["a"]}, {ONE: ["b"]}])
    called = FunctionResolver(lambda: next(answers))
    assert [called.resolve(), called.resolve()] == [{ONE: ["a"]}, {ONE: ["b"]}]


def test_lists_and_patterns_serve_as_resolvers_and_as_directories() -> None:
    both: list[Resolver] = [StaticResolver({ONE: ["a"]}), PatternResolver("{zone}", ["use1-az1"])]
    quick: list[EndpointCache] = [StaticResolver({ONE: ["a"]}), PatternResolver("{zone}", ["use1-az1"])]
    assert [one.resolve() for one in both] == [one.current() for one in quick]


# Addresses


def test_the_numbers_of_ipv6_get_brackets() -> None:
    form = check_template("address", "http://{host}:{port}", "host", "port")
    assert format_address(form, "10.0.0.1", 80) == "http://10.0.0.1:80"
    assert format_address(form, "2001:db8::1", "80") == "http://[2001:db8::1]:80"


def test_an_address_may_do_without_the_port_and_not_without_the_host() -> None:
    assert check_template("address", "{host}", "host", "port") == "{host}"
    with pytest.raises(InvalidValue, match=r"address is 'http://:\{port\}': expected \{host\} in it"):
        check_template("address", "http://:{port}", "host", "port")


# DNS


def test_each_zone_has_the_addresses_of_its_name_in_an_order_that_stays() -> None:
    names = Names(use1_az1=["10.0.0.2", "10.0.0.1", "10.0.0.2"], use1_az2=["2001:db8::1"])
    dns = DnsResolver(
        "{zone}.internal",
        [ONE, TWO],
        8080,
        address="http://{host}:{port}",
        family=socket.AF_INET,
        look_up=names.look_up,
    )
    assert dns.resolve() == {
        ONE: ["http://10.0.0.1:8080", "http://10.0.0.2:8080"],
        TWO: ["http://[2001:db8::1]:8080"],
    }
    assert names.asked[0] == ("use1-az1.internal", 8080, socket.AF_INET, socket.SOCK_STREAM)


def test_a_name_that_does_not_exist_has_no_endpoints() -> None:
    names = Names(use1_az1=["10.0.0.1"], use1_az2=socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    assert DnsResolver("{zone}.internal", [ONE, TWO], 80, look_up=names.look_up).resolve() == {
        ONE: ["10.0.0.1:80"],
        TWO: [],
    }


@pytest.mark.parametrize("code", [socket.EAI_AGAIN, socket.EAI_FAIL])
def test_a_name_that_cannot_be_looked_up_is_an_error_and_not_a_zone_without_endpoints(code: int) -> None:
    names = Names(use1_az1=["10.0.0.1"], use1_az2=socket.gaierror(code, "try again"))
    with pytest.raises(EngineUnavailable, match=r"use1-az2\.internal cannot be looked up in DNS"):
        DnsResolver("{zone}.internal", [ONE, TWO], 80, look_up=names.look_up).resolve()


def test_a_name_that_is_none_says_so() -> None:
    with pytest.raises(InvalidValue, match="is not a valid DNS name"):
        DnsResolver(f"{{zone}}.{'x' * 70}.internal", [ONE], 80).resolve()


def test_the_system_is_asked_by_default() -> None:
    [found] = DnsResolver("{zone}", ["localhost"], 80).resolve().values()
    assert found
    assert set(found) <= {"127.0.0.1:80", "[::1]:80"}


@pytest.mark.parametrize("port", [0, 65_536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(InvalidValue, match=f"port is {port}: expected 1 to 65535"):
        DnsResolver("{zone}.internal", [ONE], port)


# What it costs


def test_who_needs_nothing_of_aws_does_not_import_boto3() -> None:
    code = (
        "import sys, holdfast.calls.resolvers; print(*{'boto3', 'botocore', 'holdfast.engines.aws'} & {*sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
