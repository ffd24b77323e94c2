"""Which zones an account has, and what cannot be true of them."""

import pytest

from holdfast import InvalidValue, Zone
from holdfast.status.export import NamedZone
from holdfast.status.export.zones import check_zones
from tests.table import rows


@pytest.mark.parametrize(
    ("text", "zone", "region"),
    [
        ("use1-az1=us-east-1b", NamedZone(Zone("use1-az1"), "us-east-1b"), "us-east-1"),
        ("apne1-az4=ap-northeast-1a", NamedZone(Zone("apne1-az4"), "ap-northeast-1a"), "ap-northeast-1"),
        ("usgw1-az2=us-gov-west-1c", NamedZone(Zone("usgw1-az2"), "us-gov-west-1c"), "us-gov-west-1"),
    ],
)
def test_a_zone_is_written_as_id_and_name(text: str, zone: NamedZone, region: str) -> None:
    assert NamedZone.parse(text) == zone
    assert zone.region == region


@rows(
    ("text", "told"),
    [
        ("use1-az1", "expected its AZ-ID and its name"),
        ("us-east-1b=use1-az1", "us-east-1b is the name of a zone"),
        ("us-east-1b=us-east-1b", "us-east-1b is the name of a zone"),
        ("az1=us-east-1b", "zone 'az1': expected an AZ-ID such as use1-az1"),
        ("use1-az1=use1-az1", "zone use1-az1 is named 'use1-az1'"),
        ("use1-az1=", "zone use1-az1 is named ''"),
        ("use1-az1=us-east-1", "zone use1-az1 is named 'us-east-1'"),
        ("usw2-lax1-az1=us-west-2-lax-1a", "zone 'usw2-lax1-az1'"),
        ("=us-east-1b", "zone ''"),
    ],
)
def test_what_is_no_zone_is_named(text: str, told: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        NamedZone.parse(text)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("zones", "told"),
    [
        ([], "expected at least two zones, found 0"),
        (["use1-az1=us-east-1a"], "expected at least two zones, found 1"),
        (["use1-az1=us-east-1a", "use1-az1=us-east-1b"], "AZ-ID use1-az1 is given twice"),
        (["use1-az1=us-east-1a", "use1-az2=us-east-1a"], "name us-east-1a is given twice"),
        (["use1-az1=us-east-1a", "use1-az2=us-west-2b"], "use1-az2=us-west-2b is in another region"),
        (["use1-az1=us-east-1a", "usw2-az2=us-east-1b"], "usw2-az2=us-east-1b is in another region"),
        (["use1-az1=us-east-1a", "use1-az2=us-east-1b", "use2-az3=us-east-2c"], "use2-az3=us-east-2c is in another"),
    ],
)
def test_zones_between_which_nothing_can_move_are_refused(zones: list[str], told: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_zones([NamedZone.parse(text) for text in zones])
    assert told in str(caught.value)


def test_two_zones_are_enough() -> None:
    check_zones([NamedZone.parse(text) for text in ("use1-az1=us-east-1b", "use1-az2=us-east-1a")])
