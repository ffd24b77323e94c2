"""Queues over HTTP for those who run them: depth, dead letters, limits, policies; and who may not."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import InvalidValue
from holdfast.queue import Limits, OutgoingMessage, QueuePolicy, open_backend
from holdfast.queue.backend import Bury, LeaseRequest, QueueChange, Settlement
from holdfast.server.app import create_app
from holdfast.server.routes.limits import FullLimits, FullPolicy
from holdfast.testing import FakeClock
from tests.unit.server.queue_api import QUEUE, Api, problem, serving

HERE = f"/v1/queues/{QUEUE}"
NO_LIMITS = {
    "spill_rate": None,
    "spill_burst": None,
    "max_rate": None,
    "max_burst": None,
    "over_max_rate": "refuse",
    "run_rate": None,
    "run_burst": None,
    "concurrency": None,
    "max_waiting": None,
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("server")) as api:
        yield api


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api(app: Api, tmp_path: Path, clock: FakeClock) -> Iterator[Api]:
    with open_backend(f"sqlite:{tmp_path / 'queue.sqlite'}", clock=clock) as backend, app.over(backend, clock) as api:
        yield api


def bury(api: Api, who: str, count: int, reason: str = "broken") -> list[int]:
    """Send messages and give them up; their ids."""
    ids = [api.send(who, f"body {number}".encode()).json()["id"] for number in range(count)]
    found = api.backend.lease(LeaseRequest(queue=QUEUE, count=count, lease=30.0)).deliveries
    assert sorted(each.id for each in found) == ids
    api.backend.settle([Settlement(each.receipt, Bury(reason, "Traceback ...")) for each in found])
    return ids


READS = [
    ("GET", "/v1/queues"),
    ("GET", HERE),
    ("GET", f"{HERE}/dead"),
    ("GET", f"{HERE}/limits?tenant=anna"),
    ("GET", f"{HERE}/policy"),
    ("GET", f"{HERE}/usage?tenant=anna"),
]
CHANGES = [
    ("POST", f"{HERE}/redrive", {"which": "all"}),
    ("PUT", f"{HERE}/limits?tenant=anna", {"spill_rate": 5}),
    ("DELETE", f"{HERE}/limits?tenant=anna", None),
    ("PUT", f"{HERE}/policy", {"lanes": 64}),
    ("POST", f"{HERE}/sweep", {"before": 1}),
]


class TestWhoMay:
    @pytest.mark.parametrize(("method", "path"), READS)
    def test_operators_and_viewers_look(self, api: Api, method: str, path: str) -> None:
        assert [api(who, method, path).status_code for who in ("operator", "viewer")] == [200, 200]
        problem(api(None, method, path), 401, "credential-refused")
        if "/usage" not in path:
            problem(api("anna", method, path), 403, "not-allowed")

    @pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=lambda value: str(value)[:30])
    def test_operators_alone_change_something(self, api: Api, method: str, path: str, body: Any) -> None:
        content = {} if body is None else {"json": body}
        before = api.send("anna").json()["id"]
        for who in ("viewer", "anna"):
            problem(api(who, method, path, **content), 403, "not-allowed")
        problem(api(None, method, path, **content), 401, "credential-refused")
        assert api.status("anna", before).status_code == 200
        assert api("operator", "GET", f"{HERE}/limits?tenant=anna").json()["is_own"] is False
        assert api("operator", method, path, **content).status_code == 200

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [*((*each, None) for each in READS[1:]), *CHANGES],
        ids=lambda value: str(value)[:30],
    )
    def test_an_unknown_queue_is_not_found(self, api: Api, method: str, path: str, body: Any) -> None:
        content = {} if body is None else {"json": body}
        for name, status, slug in (("nowhere", 404, "not-found"), ("a%00", 400, "invalid-value")):
            problem(api("operator", method, path.replace(QUEUE, name), **content), status, slug)

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [*((*each, None) for each in READS[1:]), *CHANGES],
        ids=lambda value: str(value)[:30],
    )
    def test_of_a_queue_that_nobody_made_it_is_told_who_makes_it(
        self, api: Api, method: str, path: str, body: Any
    ) -> None:
        content = {} if body is None else {"json": body}
        told = problem(api("operator", method, path.replace(QUEUE, "nowhere"), **content), 404, "not-found")
        assert told["detail"] == (
            "there is no queue nowhere: an operator creates it with [[queue]] in the settings of the server"
        )

    @pytest.mark.parametrize(
        ("method", "path", "taken"),
        [
            ("GET", "dead", "tenant, reason, ids, buried_before, after, limit or bodies"),
            ("POST", "redrive", "none"),
            *((method, "limits", "tenant") for method in ("GET", "PUT", "DELETE")),
            *((method, "policy", "none") for method in ("GET", "PUT")),
        ],
    )
    def test_a_parameter_that_there_is_not_is_named_with_those_there_are(
        self, api: Api, method: str, path: str, taken: str
    ) -> None:
        content: dict[str, Any] = {"json": {}} if method in ("POST", "PUT") else {}
        told = problem(api("operator", method, f"{HERE}/{path}?tenent=anna", **content), 400, "invalid-value")
        assert told["detail"] == f"query parameter 'tenent': expected {taken}"

    def test_on_an_open_server_whoever_is_there_is_an_operator(self, api: Api) -> None:
        there = Api(create_app(api.app.state.services, allow_anonymous=True), {}, api.backend)
        assert there(None, "POST", f"{HERE}/messages?tenant=anna", content=b"").status_code == 202
        problem(there(None, "POST", f"{HERE}/messages", content=b""), 403, "not-allowed")
        assert there(None, "GET", "/v1/queues").json() == [QUEUE]
        elsewhere = {"Origin": "https://elsewhere.example"}
        problem(there(None, "POST", f"{HERE}/sweep", json={"before": 1}, headers=elsewhere), 403, "not-allowed")


class TestDepth:
    def test_a_queue_tells_how_deep_and_how_old_it_is(self, api: Api, clock: FakeClock) -> None:
        api.backend.change(QUEUE, QueueChange(policy=QueuePolicy(spill_above=2, limits=Limits(spill_rate=9.0))))
        bury(api, "bert", 1)
        for _ in range(3):
            api.send("anna", params={"priority": 1})
        api.send("bert", params={"delay": 500})
        clock.advance(40)
        api.send("bert")
        [held] = api.backend.lease(LeaseRequest(queue=QUEUE, count=1, lease=30.0)).deliveries
        told = api("viewer", "GET", HERE).json()
        assert "lanes" not in told
        assert (told["queue"], told["at"], told["oldest_age"]) == (QUEUE, clock.wall(), 40.0)
        assert (held.tenant, told["ready"]) == ("anna", 2)
        assert (told["leased"], told["delayed"], told["dead"], told["spilled"]) == (1, 1, 1, 1)
        assert (told["lanes_left_out"], told["topics"]) == (0, [])
        assert {each["tenant"]: (each["ready"], each["spilled"]) for each in told["tenants"]} == {
            "anna": (1, 1),
            "bert/../x": (1, 0),
        }
        assert (told["policy"]["spill_above"], told["policy"]["lanes"]) == (2, 128)
        assert told["policy"]["limits"] == {**NO_LIMITS, "spill_rate": 9.0}

    def test_its_lanes_and_tenants_are_listed_on_request(self, api: Api, clock: FakeClock) -> None:
        sent = api.send("anna").json()
        api.send("bert")
        clock.advance(1.5)
        told = api("viewer", "GET", HERE, params={"lanes": "true", "top": 1}).json()
        assert len(told["lanes"]) == told["lanes_in_use"] == 2
        [lane] = [each for each in told["lanes"] if each["lane"] == sent["lane"]]
        assert lane == {"lane": sent["lane"], "ready": 1, "leased": 0, "delayed": 0, "dead": 0, "oldest_age": 1.5}
        assert len(told["tenants"]) == 1
        assert api("viewer", "GET", HERE, params={"top": 0}).json()["tenants"] == []
        problem(api("viewer", "GET", HERE, params={"top": 101}), 400)

    def test_an_empty_queue_has_no_age(self, api: Api) -> None:
        told = api("viewer", "GET", HERE).json()
        assert (told["ready"], told["oldest_age"], told["lanes_in_use"], told["tenants"]) == (0, None, 0, [])

    def test_a_tenant_sees_what_it_has_there_and_may(self, api: Api) -> None:
        limits = Limits(max_waiting=10, concurrency=3)
        api.backend.change(QUEUE, QueueChange(limits={"anna": limits}))
        api.send("anna")
        api.send("bert")
        expected = {"queue": QUEUE, "tenant": "anna", "ready": 1, "spilled": 0, "leased": 0, "delayed": 0, "dead": 0}
        expected |= {"pressure": 0.1, "max_waiting": 10, "limits": {**NO_LIMITS, "max_waiting": 10, "concurrency": 3}}
        assert api("anna", "GET", f"{HERE}/usage").json() == expected
        assert api("viewer", "GET", f"{HERE}/usage?tenant=anna").json() == expected
        problem(api("bert", "GET", f"{HERE}/usage?tenant=anna"), 403, "not-allowed")
        problem(api("viewer", "GET", f"{HERE}/usage"), 403, "not-allowed")

    def test_what_a_tenant_has_spilled_is_beside_what_is_ready_and_presses_as_well(self, api: Api) -> None:
        api.backend.change(QUEUE, QueueChange(policy=QueuePolicy(spill_above=2, max_waiting=10)))
        for _ in range(3):
            api.send("anna")
        told = api("anna", "GET", f"{HERE}/usage").json()
        assert (told["ready"], told["spilled"], told["pressure"]) == (2, 1, 0.3)
        api.backend.send(QUEUE, [OutgoingMessage(tenant="anna", body=b"later", delay=60.0)])
        told = api("anna", "GET", f"{HERE}/usage").json()
        assert (told["delayed"], told["pressure"]) == (1, 0.4)

    def test_a_tenant_that_never_sent_anything_has_nothing(self, api: Api) -> None:
        told = api("anna", "GET", f"{HERE}/usage").json()
        assert (told["ready"], told["pressure"], told["max_waiting"]) == (0, 0.0, 1_000_000)
        assert told["limits"] == NO_LIMITS
        assert api("viewer", "GET", HERE).json()["tenants"] == []


class TestDeadLetters:
    def test_they_tell_why_and_whose_they_are(self, api: Api, clock: FakeClock) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        sent = api.send("anna", b"\xff", params={"group": "g", "priority": 1}, headers={"traceparent": trace}).json()
        [found] = api.backend.lease(LeaseRequest(queue=QUEUE, count=1, lease=30.0)).deliveries
        clock.advance(2)
        api.backend.settle([Settlement(found.receipt, Bury("ValueError: no", "Traceback ..."))])
        told = api("viewer", "GET", f"{HERE}/dead", params={"bodies": "true"}).json()
        assert told == {
            "letters": [
                {
                    "id": sent["id"],
                    "tenant": "anna",
                    "priority": 1,
                    "group": "g",
                    "attempts": 1,
                    "sent_at": clock.wall() - 2,
                    "buried_at": clock.wall(),
                    "reason": "ValueError: no",
                    "detail": "Traceback ...",
                    "trace": trace,
                    "size": 1,
                    "base64": "/w==",
                }
            ],
            "next": None,
        }
        assert "base64" not in api("viewer", "GET", f"{HERE}/dead").json()["letters"][0]

    def test_they_come_page_by_page(self, api: Api) -> None:
        ids = bury(api, "anna", 5)
        found: list[int] = []
        after: int | None = 0
        pages = 0
        while after is not None:
            told = api("viewer", "GET", f"{HERE}/dead", params={"limit": 2, "after": after}).json()
            found += [each["id"] for each in told["letters"]]
            after, pages = told["next"], pages + 1
        assert (found, pages) == (ids, 3)

    def test_they_are_found_by_tenant_reason_id_and_time(self, api: Api, clock: FakeClock) -> None:
        annas = bury(api, "anna", 2, "100% wrong")
        clock.advance(10)
        berts = bury(api, "bert", 2, "late")

        def found(**params: Any) -> list[int]:
            return [each["id"] for each in api("viewer", "GET", f"{HERE}/dead", params=params).json()["letters"]]

        assert found(tenant="bert/../x") == found(reason="at") == berts
        assert found(reason="0% w") == found(buried_before=clock.wall() - 5) == annas
        assert found(reason="%") == annas
        assert found(ids=[annas[0], berts[1], 1 << 60]) == [annas[0], berts[1]]
        assert found(ids=annas, tenant="bert/../x") == found(tenant="nobody") == []
        assert found(ids=[0]) == found(ids=[-1, 1 << 63, 10**40]) == []

    @pytest.mark.parametrize(
        "query",
        [
            "tenant=%00",
            "tenant=",
            "tenant=%ff",
            "reason=%00",
            "ids=x",
            "ids=1.5",
            "&".join(f"ids={number}" for number in range(1, 102)),
            "after=-1",
            f"after={1 << 53}",
            "limit=0",
            "limit=101",
            "buried_before=0",
            "buried_before=nan",
            "buried_before=1e12",
            "bodies=perhaps",
        ],
        ids=lambda query: query[:20],
    )
    def test_a_condition_that_cannot_be_is_refused(self, api: Api, query: str) -> None:
        problem(api("viewer", "GET", f"{HERE}/dead?{query}"), 400)

    def test_they_are_put_back_as_often_as_asked_and_once(
        self, api: Api, clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        ids = bury(api, "anna", 3)
        with caplog.at_level(logging.INFO, "holdfast.server"):
            told = api("operator", "POST", f"{HERE}/redrive", json={"which": "all", "limit": 2}).json()
        assert told == {"count": 2, "action": "redrive"}
        credential = api.tokens["operator"].split("_")[1]
        assert f"queue {QUEUE}: 2 dead letters put back, by credential {credential}" in caplog.messages
        again = [api("operator", "POST", f"{HERE}/redrive", json={"which": "all"}).json()["count"] for _ in range(2)]
        assert again == [1, 0]
        found = api.backend.lease(LeaseRequest(queue=QUEUE, count=9, lease=30.0)).deliveries
        assert sorted(each.id for each in found) == ids
        assert {each.attempt for each in found} == {1}

    def test_those_that_are_meant_are_forgotten_and_no_others(self, api: Api, clock: FakeClock) -> None:
        annas = bury(api, "anna", 2, "wrong")
        clock.advance(10)
        berts = bury(api, "bert", 3, "late")

        def discard(**conditions: Any) -> int:
            answer = api("operator", "POST", f"{HERE}/redrive", json={"action": "discard", **conditions})
            assert answer.json()["action"] == "discard"
            count: int = answer.json()["count"]
            return count

        assert discard(tenant="nobody") == discard(tenant="anna", reason="late") == 0
        assert discard(ids=[0, -1, 1 << 70]) == 0
        assert discard(ids=[berts[0]]) == 1
        assert discard(buried_before=clock.wall() - 5) == 2
        left = [each["id"] for each in api("viewer", "GET", f"{HERE}/dead").json()["letters"]]
        assert left == berts[1:]
        assert discard(reason="late", limit=1) == 1
        assert api("viewer", "GET", HERE).json()["dead"] == 1
        problem(api.status("anna", annas[0]), 404)

    @pytest.mark.parametrize(
        "body",
        [
            {"tenant": ""},
            {"tenant": "a\0"},
            {"tenant": "é" * 200},
            {"reason": "\0"},
            {"ids": ["x"]},
            {"ids": [1] * 1001},
            {"buried_before": -1},
            {"which": "some"},
            {"which": "all", "limit": 0},
            {"which": "all", "limit": 1001},
            {"which": "all", "who": 1},
            {"which": "all", "action": "forget"},
            [],
        ],
        ids=lambda body: str(body)[:30],
    )
    def test_what_cannot_be_is_not_put_back(self, api: Api, body: Any) -> None:
        bury(api, "anna", 1)
        problem(api("operator", "POST", f"{HERE}/redrive", json=body), 400)
        assert api("viewer", "GET", HERE).json()["dead"] == 1

    @pytest.mark.parametrize(
        "body",
        [{}, {"ids": []}, {"action": "discard"}, {"which": "all", "tenant": "anna"}, {"which": "all", "ids": [1]}],
        ids=str,
    )
    def test_nothing_is_put_back_unless_it_is_clear_what(self, api: Api, body: Any) -> None:
        bury(api, "anna", 1)
        problem(api("operator", "POST", f"{HERE}/redrive", json=body), 409, "conflict")
        assert api("viewer", "GET", HERE).json()["dead"] == 1


class TestLimits:
    @pytest.mark.parametrize("tenant", ["anna", "a/b", "a//b/", "../..", "é ?&=#", "\n"])
    def test_a_tenant_has_those_of_the_queue_unless_it_has_its_own(self, api: Api, tenant: str) -> None:
        path, params = f"{HERE}/limits", {"tenant": tenant}
        api.backend.change(QUEUE, QueueChange(policy=QueuePolicy(limits=Limits(spill_rate=7.0))))
        everybodys = {"queue": QUEUE, "tenant": tenant, "is_own": False, "limits": {**NO_LIMITS, "spill_rate": 7.0}}
        assert api("viewer", "GET", path, params=params).json() == everybodys
        wanted = {"max_rate": 2.5, "over_max_rate": "delay", "concurrency": 4}
        own = {**everybodys, "is_own": True, "limits": {**NO_LIMITS, **wanted}}
        for _ in range(2):
            assert api("operator", "PUT", path, params=params, json=wanted).json() == own
        assert api("viewer", "GET", path, params=params).json() == own
        assert api("viewer", "GET", path, params={"tenant": f"{tenant}x"}).json()["is_own"] is False
        for _ in range(2):
            assert api("operator", "DELETE", path, params=params).json() == everybodys

    def test_they_hold_at_once(self, api: Api, caplog: pytest.LogCaptureFixture) -> None:
        limits = {"max_rate": 0.001, "max_burst": 1}
        with caplog.at_level(logging.INFO, "holdfast.server"):
            api("operator", "PUT", f"{HERE}/limits", params={"tenant": "anna"}, json=limits)
        assert [api.send("anna").status_code for _ in range(2)] == [202, 429]
        api("operator", "DELETE", f"{HERE}/limits", params={"tenant": "anna"})
        assert api.send("anna").status_code == 202
        assert any("limits of tenant 'anna' set, by credential" in each for each in caplog.messages)

    @pytest.mark.parametrize(
        "body",
        [
            *({"spill_rate": value} for value in (0, -1, "x")),
            {"max_rate": 1e300},
            *({"concurrency": value} for value in (0, 1.5)),
            {"max_waiting": 1 << 70},
            {"over_max_rate": "drop"},
            {"unknown": 1},
            [],
            None,
        ],
        ids=str,
    )
    def test_those_that_cannot_be_are_refused(self, api: Api, body: Any) -> None:
        problem(api("operator", "PUT", f"{HERE}/limits?tenant=anna", json=body), 400)
        assert api("viewer", "GET", f"{HERE}/limits?tenant=anna").json()["is_own"] is False

    @pytest.mark.parametrize("query", ["", "?tenant=", "?tenant=%00", "?tenant=%ff", f"?tenant={'x' * 257}"])
    def test_they_are_somebodys(self, api: Api, query: str) -> None:
        for method in ("GET", "PUT", "DELETE"):
            content: dict[str, Any] = {"json": {}} if method == "PUT" else {}
            problem(api("operator", method, f"{HERE}/limits{query}", **content), 400)

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    def test_whoever_names_nobody_is_told_so(self, api: Api, method: str) -> None:
        content: dict[str, Any] = {"json": {}} if method == "PUT" else {}
        told = problem(api("operator", method, f"{HERE}/limits", **content), 400)
        assert told["errors"] == [{"in": "query", "name": "tenant", "detail": "missing"}]


def bounds_of(described: type[Any]) -> Iterator[tuple[str, float, float]]:
    """The fields of a structure that have bounds, with those."""
    for field in msgspec.json.schema(described)["$defs"][described.__name__]["properties"].items():
        name, schema = field
        for part in schema.get("anyOf", [schema]):
            if "maximum" in part:
                yield name, part.get("minimum", part.get("exclusiveMinimum", 0) + 1), part["maximum"]


class TestPolicy:
    def test_all_of_it_is_told_and_set(self, api: Api) -> None:
        default = api("viewer", "GET", f"{HERE}/policy").json()
        assert (default["lanes"], default["ttl"], default["limits"]) == (128, None, NO_LIMITS)
        wanted = {"lanes": 64, "ttl": 60.0, "limits": {"spill_rate": 3.0}}
        changed = {**default, "lanes": 64, "ttl": 60.0, "limits": {**NO_LIMITS, "spill_rate": 3.0}}
        assert api("operator", "PUT", f"{HERE}/policy", json=wanted).json() == changed
        assert api("viewer", "GET", f"{HERE}/policy").json() == changed
        assert api("operator", "PUT", f"{HERE}/policy", json=changed).json() == changed, "as it was told"
        assert api("operator", "PUT", f"{HERE}/policy", json={}).json() == default

    @pytest.mark.parametrize(
        "body",
        [
            {"lanes": 0},
            {"backlog_share": 0.6},
            {"limits": {"spill_rate": -1}},
            {"ttl": -5},
            {"who": 1},
            [],
        ],
        ids=str,
    )
    def test_one_that_cannot_be_is_refused(self, api: Api, body: Any) -> None:
        problem(api("operator", "PUT", f"{HERE}/policy", json=body), 400)
        assert api("viewer", "GET", f"{HERE}/policy").json()["lanes"] == 128

    @pytest.mark.parametrize("body", [{"lanes": 2}, {"backlog_share": 0.5, "low_priority_share": 0.5}], ids=str)
    def test_one_whose_parts_do_not_go_together_is_refused(self, api: Api, body: Any) -> None:
        problem(api("operator", "PUT", f"{HERE}/policy", json=body), 409, "conflict")
        assert api("viewer", "GET", f"{HERE}/policy").json()["lanes"] == 128

    @pytest.mark.parametrize(("described", "kept"), [(FullPolicy, QueuePolicy), (FullLimits, Limits)])
    def test_what_is_described_is_what_is_expected(self, described: type[Any], kept: type[Any]) -> None:
        assert described.__struct_fields__ == kept.__struct_fields__
        alone = (
            {"lanes_per_tenant": 0, "backlog_share": 0, "low_priority_share": 0, "spill_share": 0}
            if kept is QueuePolicy
            else {}
        )
        tried = []
        for name, least, most in bounds_of(described):
            step = 1 if isinstance(least, int) and isinstance(most, int) else least / 2 or 1e-9
            for value in (least, most):
                kept(**{**alone, name: value})
            for value in (least - step, most + max(step, most / 2**52)):
                with pytest.raises(InvalidValue, match=name):
                    kept(**{**alone, name: value})
            tried.append(name)
        assert {*tried, "limits", "over_max_rate"} >= {*kept.__struct_fields__}
        assert msgspec.structs.asdict(described()) == msgspec.structs.asdict(kept()) | (
            {"limits": FullLimits()} if kept is QueuePolicy else {}
        )

    def test_messages_outlive_a_change_of_lanes(self, api: Api) -> None:
        ids = {api.send("anna").json()["id"] for _ in range(10)}
        api("operator", "PUT", f"{HERE}/policy", json={"lanes": 1, "lanes_per_tenant": 1})
        ids |= {api.send("anna").json()["id"] for _ in range(10)}
        found = api.backend.lease(LeaseRequest(queue=QUEUE, count=100, lease=30.0)).deliveries
        assert {each.id for each in found} == ids


class TestSweep:
    def test_what_is_old_is_dropped_and_what_is_held_is_not(self, api: Api, clock: FakeClock) -> None:
        api.send("anna")
        [held] = api.backend.lease(LeaseRequest(queue=QUEUE, count=1, lease=300.0)).deliveries
        old = api.send("anna").json()["id"]
        clock.advance(60)
        fresh = api.send("anna").json()["id"]
        assert api("operator", "POST", f"{HERE}/sweep", json={}).json() == {"dropped": 0}
        for dropped in (1, 0):
            told = api("operator", "POST", f"{HERE}/sweep", json={"before": clock.wall() - 30}).json()
            assert told == {"dropped": dropped}
        assert [api.status("anna", each).status_code for each in (held.id, old, fresh)] == [200, 404, 200]

    @pytest.mark.parametrize(
        "body",
        [{"before": 4e9}, {"before": 1.75e12}, {"before": -1}, {"before": None}, {"all": True}, []],
        ids=str,
    )
    def test_nothing_is_dropped_unless_it_is_clear_what(self, api: Api, body: Any) -> None:
        api.send("anna")
        problem(api("operator", "POST", f"{HERE}/sweep", json=body), 409 if body == {"before": 4e9} else 400)
        assert api("viewer", "GET", HERE).json()["ready"] == 1


def test_the_names_of_queues_are_listed(api: Api) -> None:
    assert api("viewer", "GET", "/v1/queues").json() == [QUEUE]
