"""A zone or a workload that nobody configured is most likely a slip."""

import pytest

from holdfast import NotFound, Zone
from holdfast.config import WorkloadSettings
from holdfast.config.settings import require_known

SHOP = WorkloadSettings(name="shop", region="us-east-1", zones=("use1-az1", "use1-az2"))
CART = WorkloadSettings(name="cart", region="us-east-1", zones=("use1-az2", "use1-az3"))


@pytest.mark.parametrize(
    ("zone", "workload"), [("use1-az1", None), ("use1-az3", None), ("use1-az1", "shop"), ("use1-az3", "cart")]
)
def test_what_is_configured_is_welcome(zone: str, workload: str | None) -> None:
    require_known((SHOP, CART), Zone(zone), workload)


@pytest.mark.parametrize(
    ("zone", "workload", "told"),
    [
        ("use1-az4", None, "no zone use1-az4 is configured: expected one of use1-az1, use1-az2, use1-az3"),
        ("use1-az3", "shop", "no zone use1-az3 is configured for shop: expected one of use1-az1, use1-az2"),
        ("use1-az1", "chop", "no workload chop is configured: expected one of shop, cart"),
    ],
)
def test_what_is_not_is_told_with_what_is(zone: str, workload: str | None, told: str) -> None:
    with pytest.raises(NotFound) as caught:
        require_known((SHOP, CART), Zone(zone), workload)
    assert str(caught.value) == told


def test_where_nothing_is_configured_every_workload_and_az_id_is_welcome() -> None:
    require_known((), Zone("use1-az9"), "any")
    require_known((), Zone("usw2-lax1-az1"), None)
    with pytest.raises(NotFound, match=r"zone everything is no AZ-ID such as use1-az1.*add a \[\[workload\]\]"):
        require_known((), Zone("everything"), None)
