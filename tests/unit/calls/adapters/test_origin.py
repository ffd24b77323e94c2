"""Where addresses of endpoints point to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue
from holdfast.calls.adapters.origin import Origin, origin_of


@pytest.mark.parametrize(
    ("address", "expected", "netloc"),
    [
        ("10.0.0.1:8080", Origin("http", "10.0.0.1", 8080), "10.0.0.1:8080"),
        ("pricing.internal", Origin("http", "pricing.internal", None), "pricing.internal"),
        ("https://pricing.internal", Origin("https", "pricing.internal", None), "pricing.internal"),
        ("https://pricing.internal:443/", Origin("https", "pricing.internal", 443), "pricing.internal"),
        ("http://pricing:443", Origin("http", "pricing", 443), "pricing:443"),
        ("[fd00::1]:8080", Origin("http", "fd00::1", 8080), "[fd00::1]:8080"),
        ("https://[fd00::1]", Origin("https", "fd00::1", None), "[fd00::1]"),
    ],
)
def test_an_address_is_host_and_port_or_a_url(address: str, expected: Origin, netloc: str) -> None:
    assert origin_of(address, "http") == expected
    assert expected.netloc == netloc


def test_an_address_without_a_scheme_has_that_of_the_request() -> None:
    assert origin_of("pricing:9", "https").scheme == "https"


@pytest.mark.parametrize(
    "address",
    ["", "http://", "ftp://pricing", "http://pricing/path", "http://pricing?a=1", "http://me@pricing", "pricing:x",
     "pricing:70000", "http://[fd00::1", "http://pricing#top"],
)  # fmt: skip
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue, match="expected host:port"):
        origin_of(address, "http")


@given(st.sampled_from(["http", "https"]), st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,2}", fullmatch=True),
       st.none() | st.integers(1, 65_535))  # fmt: skip
def test_what_the_host_header_says_leads_back_to_the_same_place(scheme: str, host: str, port: int | None) -> None:
    origin = origin_of(host if port is None else f"{host}:{port}", scheme)
    default = {"http": 80, "https": 443}[scheme]
    again = origin_of(origin.netloc, scheme)
    assert (again.scheme, again.host, again.port or default) == (scheme, host, port or default)
