"""Which endpoint is called next."""

from collections import Counter

import pytest

from holdfast import InvalidValue, Zone
from holdfast.calls import Endpoints, NoEndpoint

BY_ZONE = {Zone("az1"): ["a", "b"], Zone("az2"): ["c"], Zone("az3"): ["d", "e", "f"]}


class View:
    def __init__(self) -> None:
        self.zones: frozenset[Zone] = frozenset()
        self.asked: list[str | None] = []

    def out(self, workload: str | None = None) -> frozenset[Zone]:
        self.asked.append(workload)
        return self.zones


def test_zones_get_equal_shares_whatever_the_number_of_their_instances() -> None:
    endpoints = Endpoints(BY_ZONE, View())
    calls = [endpoints.next() for _ in range(36)]
    assert Counter(zone for zone, _ in calls) == {"az1": 12, "az2": 12, "az3": 12}
    assert Counter(address for _, address in calls) == {"a": 6, "b": 6, "c": 12, "d": 4, "e": 4, "f": 4}


def test_a_zone_that_is_out_gets_nothing_from_the_next_call_on_and_is_back_as_soon_as_it_is_in() -> None:
    view = View()
    endpoints = Endpoints(BY_ZONE, view, "shop")
    view.zones = frozenset({Zone("az2")})
    assert "az2" not in {endpoints.next()[0] for _ in range(12)}
    view.zones = frozenset()
    assert "az2" in {endpoints.next()[0] for _ in range(3)}
    assert set(view.asked) == {"shop"}


def test_with_all_zones_out_there_is_nowhere_to_call() -> None:
    view = View()
    view.zones = frozenset(BY_ZONE)
    with pytest.raises(NoEndpoint, match="all zones"):
        Endpoints(BY_ZONE, view).next()


@pytest.mark.parametrize("by_zone", [{}, {Zone("az1"): []}])
def test_zones_without_endpoints_are_refused(by_zone: dict[Zone, list[str]]) -> None:
    with pytest.raises(InvalidValue, match="at least one"):
        Endpoints(by_zone, View())
