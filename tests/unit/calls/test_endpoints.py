"""Which endpoint is called next."""

import threading
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidValue, Zone
from holdfast.calls.endpoints import AllZonesIn, Endpoint, Endpoints, NoEndpoint, ShardEndpoints
from holdfast.calls.resolvers import AddressesByZone, FunctionResolver, PatternResolver
from holdfast.shards import DesignedSharding, Fleet, Shard, pick_worker

ONE, TWO, THREE = Zone("az1"), Zone("az2"), Zone("az3")
BY_ZONE = {ONE: ["a", "b"], TWO: ["c"], THREE: ["d", "e", "f"]}
ZONE_OF = {address: zone for zone, addresses in BY_ZONE.items() for address in addresses}

addresses = st.sampled_from(sorted(ZONE_OF))
zones = st.sampled_from([ONE, TWO, THREE])


class View:
    def __init__(self, *out: Zone) -> None:
        self.zones: frozenset[Zone] = frozenset(out)
        self.asked: list[str | None] = []

    def zones_out(self, workload: str | None = None) -> frozenset[Zone]:
        self.asked.append(workload)
        return self.zones


class Changing:
    """An EndpointCache that says what a test tells it to."""

    def __init__(self, known: AddressesByZone) -> None:
        self.known = known

    def current(self) -> AddressesByZone:
        return self.known


# In offset


def test_zones_get_equal_shares_whatever_the_number_of_their_instances() -> None:
    endpoints = Endpoints(BY_ZONE, View())
    calls = [endpoints.next() for _ in range(36)]
    assert Counter(zone for zone, _ in calls) == {"az1": 12, "az2": 12, "az3": 12}
    assert Counter(address for _, address in calls) == {"a": 6, "b": 6, "c": 12, "d": 4, "e": 4, "f": 4}


def test_the_name_of_a_zone_is_refused_because_no_status_has_it() -> None:
    with pytest.raises(InvalidValue, match="us-east-1a is the name of a zone"):
        Endpoints({Zone("us-east-1a"): ["a"]})
    with pytest.raises(InvalidValue, match="us-east-1b is the name of a zone"):
        Endpoints(BY_ZONE, own_zone=Zone("us-east-1b"))


def test_an_endpoint_is_a_pair_with_names() -> None:
    endpoint = Endpoints(BY_ZONE).next()
    zone, address = endpoint
    assert (zone, address) == (endpoint.zone, endpoint.address) == endpoint == Endpoint(ONE, "a")


def test_a_zone_that_is_out_gets_nothing_from_the_next_call_on_and_is_back_as_soon_as_it_is_in() -> None:
    view = View()
    endpoints = Endpoints(BY_ZONE, view, "shop")
    view.zones = frozenset({TWO})
    assert "az2" not in {endpoints.next()[0] for _ in range(12)}
    view.zones = frozenset()
    assert "az2" in {endpoints.next()[0] for _ in range(3)}
    assert set(view.asked) == {"shop"}


def test_without_a_view_all_zones_are_in() -> None:
    endpoints = Endpoints(BY_ZONE)
    assert {endpoints.next().zone for _ in range(3)} == {ONE, TWO, THREE}
    assert AllZonesIn().zones_out("shop") == frozenset()


def test_with_all_zones_out_there_is_nowhere_to_call() -> None:
    with pytest.raises(NoEndpoint, match=r"all zones with endpoints \(az1, az2, az3\) are out"):
        Endpoints(BY_ZONE, View(*BY_ZONE)).next()
    with pytest.raises(NoEndpoint):
        Endpoints(BY_ZONE, View(*BY_ZONE), own_zone=ONE).next(["a"])


@pytest.mark.parametrize("by_zone", [{}, {ONE: []}, {ONE: ["a"], TWO: []}])
def test_zones_without_endpoints_are_refused(by_zone: dict[Zone, list[str]]) -> None:
    with pytest.raises(InvalidValue, match="at least one"):
        Endpoints(by_zone, View())


def test_processes_that_begin_at_different_turns_begin_at_different_endpoints() -> None:
    even = {ONE: ["a", "b"], TWO: ["c", "d"]}
    assert Counter(Endpoints(even, offset=offset).next().address for offset in range(8)) == dict.fromkeys("abcd", 2)


def test_threads_share_the_turns() -> None:
    endpoints = Endpoints(BY_ZONE)
    ready = threading.Barrier(4)

    def work() -> list[Endpoint]:
        ready.wait()
        return [endpoints.next() for _ in range(900)]

    with ThreadPoolExecutor(4) as pool:
        calls = [call for future in [pool.submit(work) for _ in range(4)] for call in future.result()]
    assert Counter(zone for zone, _ in calls) == {ONE: 1200, TWO: 1200, THREE: 1200}
    assert Counter(address for zone, address in calls if zone == THREE) == {"d": 400, "e": 400, "f": 400}


# The own zone


def test_calls_stay_in_the_own_zone_and_go_round_its_endpoints() -> None:
    endpoints = Endpoints(BY_ZONE, View(), own_zone=THREE)
    assert [endpoints.next().address for _ in range(4)] == ["d", "e", "f", "d"]


def test_calls_leave_the_own_zone_when_it_is_out_and_come_back_when_it_is_in() -> None:
    view = View(ONE)
    endpoints = Endpoints(BY_ZONE, view, own_zone=ONE)
    assert {endpoints.next().zone for _ in range(4)} == {TWO, THREE}
    view.zones = frozenset()
    assert {endpoints.next().zone for _ in range(4)} == {ONE}


def test_from_a_zone_without_endpoints_calls_go_round_the_others() -> None:
    endpoints = Endpoints(BY_ZONE, own_zone=Zone("az9"))
    assert {endpoints.next().zone for _ in range(3)} == {ONE, TWO, THREE}


def test_a_retry_leaves_the_own_zone_and_comes_back_when_as_much_was_tried_elsewhere() -> None:
    endpoints = Endpoints(BY_ZONE, own_zone=THREE)
    assert {endpoints.next(["d"]).zone for _ in range(4)} == {ONE, TWO}
    assert {endpoints.next(["d", "a"]) for _ in range(4)} == {(TWO, "c")}
    assert {endpoints.next(["d", "a", "c"]).address for _ in range(4)} == {"e", "f"}
    assert {endpoints.next(["d", "a", "c", "e"]) for _ in range(4)} == {(ONE, "b")}


# Retries


def test_a_retry_goes_to_a_zone_in_which_nothing_was_tried() -> None:
    endpoints = Endpoints(BY_ZONE)
    assert {endpoints.next(["d"]).zone for _ in range(12)} == {ONE, TWO}
    assert {endpoints.next(["a", "d"]) for _ in range(12)} == {(TWO, "c")}


def test_when_something_was_tried_in_all_zones_a_retry_goes_where_the_fewest_were() -> None:
    endpoints = Endpoints(BY_ZONE)
    assert {endpoints.next(["a", "c", "d", "e"]) for _ in range(12)} == {(ONE, "b")}
    assert {endpoints.next(["a", "b", "c", "d", "e"]) for _ in range(12)} == {(THREE, "f")}


def test_when_all_were_tried_it_starts_over() -> None:
    endpoints = Endpoints(BY_ZONE)
    assert Counter(endpoints.next(list(ZONE_OF)).zone for _ in range(12)) == {ONE: 4, TWO: 4, THREE: 4}
    own = Endpoints(BY_ZONE, View(TWO, THREE), own_zone=ONE)
    assert {own.next({"a", "b"}).address for _ in range(4)} == {"a", "b"}


@given(st.sets(addresses), st.sets(zones), st.none() | zones, st.integers(0, 1_000))
def test_whatever_was_tried_and_is_out_the_call_goes_to_an_endpoint_that_is_neither_if_there_is_one(
    tried: set[str], out: set[Zone], own: Zone | None, offset: int
) -> None:
    endpoints = Endpoints(BY_ZONE, View(*out), own_zone=own, offset=offset)
    allowed = {address for address, zone in ZONE_OF.items() if zone not in out}
    if not allowed:
        with pytest.raises(NoEndpoint):
            endpoints.next(tried)
        return
    zone, address = endpoints.next(tried)
    assert ZONE_OF[address] == zone
    assert address in (allowed - tried or allowed)
    untried = allowed - tried
    failures = Counter(ZONE_OF[one] for one in tried)
    if untried:
        assert failures[zone] == min(failures[ZONE_OF[one]] for one in untried)
        if any(ZONE_OF[one] == own and failures[own] == failures[zone] for one in untried):
            assert zone == own


@given(st.none() | zones, st.integers(0, 1_000))
def test_a_call_that_is_retried_often_enough_has_tried_every_endpoint_once(own: Zone | None, offset: int) -> None:
    endpoints = Endpoints(BY_ZONE, own_zone=own, offset=offset)
    tried: list[str] = []
    for _ in ZONE_OF:
        tried.append(endpoints.next(tried).address)
    assert sorted(tried) == sorted(ZONE_OF)
    assert len({ZONE_OF[address] for address in tried[:3]}) == 3, "three attempts see three zones"
    assert own in {None, ZONE_OF[tried[0]]}


# Endpoints that change


def test_endpoints_that_come_and_go_are_called_and_no_longer_called_from_then_on() -> None:
    directory = Changing({ONE: ["a"], TWO: ["c"]})
    endpoints = Endpoints(directory)
    assert {endpoints.next().address for _ in range(4)} == {"a", "c"}
    directory.known = {ONE: ["a", "b"], THREE: ["d"]}
    assert {endpoints.next().address for _ in range(8)} == {"a", "b", "d"}


def test_a_round_goes_on_where_it_was_when_endpoints_change() -> None:
    directory = Changing({ONE: ["a", "b", "c"]})
    endpoints = Endpoints(directory)
    assert endpoints.next().address == "a"
    directory.known = {ONE: ["a", "b", "c", "d"]}
    assert [endpoints.next().address for _ in range(3)] == ["b", "c", "d"]


def test_zones_that_lost_all_their_endpoints_are_passed_over() -> None:
    directory = Changing({ONE: [], TWO: ["c"]})
    assert {Endpoints(directory, offset=offset).next() for offset in range(4)} == {(TWO, "c")}


@pytest.mark.parametrize("known", [{}, {ONE: []}])
def test_the_error_tells_unknown_endpoints_from_zones_that_are_out(known: AddressesByZone) -> None:
    with pytest.raises(NoEndpoint, match=r"^no endpoints are known: add endpoints, or check the resolver$"):
        Endpoints(Changing(known), View(ONE)).next()
    with pytest.raises(NoEndpoint, match=r"^all zones with endpoints \(az2\) are out: bring one in"):
        Endpoints(Changing({**known, TWO: ["c"]}), View(TWO)).next()


def test_a_pattern_is_taken_as_it_is() -> None:
    endpoints = Endpoints(PatternResolver("https://{zone}.pricing.internal", ["az1", "az2"]))
    assert [endpoints.next().address for _ in range(2)] == [
        "https://az1.pricing.internal",
        "https://az2.pricing.internal",
    ]


def test_a_resolver_that_would_be_asked_for_every_call_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"expected addresses by zone, or a RefreshingEndpointCache"):
        Endpoints(FunctionResolver(lambda: BY_ZONE))  # type: ignore[arg-type]


# Shards

WORKERS = {f"az{zone}": [f"http://10.0.{zone}.{number}" for number in range(5)] for zone in range(1, 5)}
ZONES = [Zone(name) for name in WORKERS]
DESIGNED = DesignedSharding(Fleet.from_groups(WORKERS), 4, overlap=2, key=b"a secret that stays the same")


def of_shard(shard: Shard, view: View | None = None) -> ShardEndpoints:
    def choose(tried: Collection[str], zones_out: frozenset[Zone]) -> str | None:
        return pick_worker(shard, tried=tried, zones_out=zones_out)

    return ShardEndpoints([(Zone(slot.group[0]), slot.worker) for slot in shard.slots], choose, view, "shop")


@given(st.integers(0, DESIGNED.capacity - 1), st.sets(st.sampled_from(ZONES)))
def test_a_tenants_retries_go_round_its_shard_and_never_leave_it(tenant: int, out: set[Zone]) -> None:
    shard = DESIGNED.shard(tenant)
    view = View(*out)
    endpoints = of_shard(shard, view)
    allowed = {slot.worker for slot in shard.slots if slot.group[0] not in out}
    tried: list[str] = []
    for _ in range(2 * len(allowed)):
        zone, address = endpoints.next(tried)
        assert address in WORKERS[zone]
        tried.append(address)
    assert set(tried[: len(allowed)]) == allowed, "each once before one comes twice"
    assert set(tried) == allowed
    if not allowed:
        with pytest.raises(NoEndpoint, match="no endpoint of the shard"):
            endpoints.next()
    assert set(view.asked) <= {"shop"}


def test_a_shard_without_a_view_has_all_zones_in() -> None:
    assert of_shard(DESIGNED.shard(0)).next().address in DESIGNED.shard(0).workers


def test_an_address_from_outside_the_shard_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="choose returned d, which is not in the shard"):
        ShardEndpoints([(ONE, "a")], lambda tried, zones_out: "d").next()


def test_a_shard_with_the_name_of_a_zone_instead_of_its_id_is_refused() -> None:
    with pytest.raises(InvalidValue, match="us-east-1a"):
        ShardEndpoints([(Zone("us-east-1a"), "a")], lambda tried, zones_out: "a")


def test_a_shard_of_nobody_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at least one"):
        ShardEndpoints([], lambda tried, zones_out: None)
