"""Names of zones, characters that text for people must not have, and counts with their nouns; text that is escaped."""

import re
import sys
import unicodedata

import pytest

from holdfast import InvalidValue, Operation
from holdfast._names import (
    CONTROL_CHARACTERS,
    check_address,
    check_region,
    escape_unprintable,
    format_count,
    parse_operation,
    parse_zone,
)
from tests.table import rows


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (0, ("tenant",), "0 tenants"),
        (1, ("tenant",), "1 tenant"),
        (2000, ("tenant",), "2,000 tenants"),
        (1, ("delivery", "deliveries"), "1 delivery"),
        (2, ("delivery", "deliveries"), "2 deliveries"),
    ],
)
def test_a_count_has_a_noun_in_singular_or_plural(count: int, words: tuple[str, ...], expected: str) -> None:
    assert format_count(count, *words) == expected


def test_exactly_the_controls_of_terminals_lines_and_directions_are_control_characters() -> None:
    directional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    marks = {unicodedata.lookup(name) for name in ("LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK", "ARABIC LETTER MARK")}
    expected = {
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in {"Cc", "Zl", "Zp"}
        or unicodedata.bidirectional(character) in directional
        or character in marks
    }
    assert set(re.findall(f"[{CONTROL_CHARACTERS}]", "".join(map(chr, range(0x10000))))) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("us-east-1a", "us-east-1a is the name of a zone"),
        ("us-west-2-lax-1a", "us-west-2-lax-1a is the name of a zone"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1-wl1-bos-wlz-1 is the name of a zone"),
        ("USE1-AZ1", "zone USE1-AZ1: AZ-IDs have small letters only; expected use1-az1"),
        ("", "zone '': expected an AZ-ID such as use1-az1"),
    ],
)
def test_what_is_no_az_id_is_refused_with_what_is_expected(text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{re.escape(complaint)}"):
        parse_zone(text)


@rows(
    "address",
    ["", "nowhere", "127.0.0.1:8470", "ftp://host", "http://", "http://host:x", "http://host:0", "http://a b"],
)
def test_an_address_of_a_server_that_is_no_http_url_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue, match="expected one such as http://"):
        check_address(address)


def test_an_address_of_a_server_has_no_slash_at_its_end() -> None:
    assert check_address("https://holdfast.internal/behind/") == "https://holdfast.internal/behind"


def test_line_breaks_and_control_characters_are_escaped() -> None:
    assert escape_unprintable("größe 10 µs") == "größe 10 µs"
    assert escape_unprintable("a\nb\x1b[31m\u2028c") == r"a\nb\x1b[31m\u2028c"


@pytest.mark.parametrize("text", ["Home", "/Index", "Home/", ""])
def test_an_operation_has_a_service_and_a_name(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected service/name"):
        parse_operation(text)
    assert parse_operation("Home/Index/more") == Operation("Home", "Index/more")


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("use1-az1", "us-east-1"),
        ("usw2-lax1-az1", "us-west-2"),
        ("apse2-az3", "ap-southeast-2"),
        ("cnnw1-az1", "cn-northwest-1"),
        ("usgw1-az1", "us-gov-west-1"),
        ("rack-1", "us-east-1"),
        ("rack1-az1", "us-east-1"),
        ("use1-az1", "home"),
    ],
)
def test_a_zone_of_its_region_and_names_outside_aws_are_accepted(zone: str, region: str) -> None:
    check_region(parse_zone(zone), region)


@rows(
    ("zone", "region", "found"),
    [
        ("euw1-az1", "us-east-1", "eu-west-1"),
        ("use2-az1", "us-east-1", "us-east-2"),
        ("usgw1-az1", "us-west-1", "us-gov-west-1"),
        ("apne1-az1", "ap-east-1", "ap-northeast-1"),
    ],
)
def test_a_zone_of_another_region_is_refused_with_its_own_region(zone: str, region: str, found: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        check_region(parse_zone(zone), region)
    assert f'{zone} is a zone of {found}, not of {region}: write region = "{found}"' in str(raised.value)
