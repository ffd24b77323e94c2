"""Sending over HTTP: whose message it is, what comes with it, what is refused, and what becomes of it."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import EngineUnavailable, OutcomeUnknown
from holdfast._errors import DatabaseFull
from holdfast.queue import Delivery, Limits, QueuePolicy, open_backend
from holdfast.queue.backend import FULL_CAPABILITIES, Backend, Bury, LeaseRequest, QueueChange, Settlement
from holdfast.testing import FakeClock
from tests.unit.server.queue_api import QUEUE, Api, problem, serving

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MEBIBYTE = 1 << 20


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


def delivered(api: Api, count: int = 100) -> list[Delivery]:
    """What a worker is given."""
    return list(api.backend.lease(LeaseRequest(queue=QUEUE, count=count, lease=30.0)).deliveries)


class TestOne:
    def test_it_is_kept_for_the_tenant_of_the_credential(self, api: Api) -> None:
        body = bytes(range(256))
        answer = api.send("anna", body)
        assert answer.status_code == 202
        told = answer.json()
        assert {"status", "id", "queue", "lane", "trace", "pressure", "is_duplicate", "is_spilled"} == told.keys()
        assert (told["status"], told["queue"], told["is_duplicate"]) == ("accepted", QUEUE, False)
        [found] = delivered(api)
        assert (found.id, found.tenant, found.body) == (told["id"], "anna", body)
        assert (found.trace, found.lane, found.deadline) == (told["trace"], told["lane"], None)

    def test_whatever_it_calls_itself_it_is_kept_as_it_is(self, api: Api) -> None:
        for kind in ("application/json", "multipart/form-data", "application/x-www-form-urlencoded", "nonsense"):
            assert api.send("anna", b'{"tenant": "bert"', headers={"Content-Type": kind}).status_code == 202
        assert {(each.tenant, each.body) for each in delivered(api)} == {("anna", b'{"tenant": "bert"')}

    def test_a_message_may_be_empty(self, api: Api) -> None:
        assert api.send("anna", b"").status_code == 202
        assert [each.body for each in delivered(api)] == [b""]

    def test_its_options_are_in_the_query(self, api: Api, clock: FakeClock) -> None:
        sent = api.send("anna", b"a", params={"priority": 0, "delay": 5, "group": "g é", "ttl": 60}).json()
        api.send("anna", b"b", params={"priority": 3, "ttl": 1})
        assert sent["lane"] % 4 == 0
        assert [each.body for each in delivered(api)] == [b"b"]
        clock.advance(10)
        [found] = delivered(api)
        assert (found.body, found.group) == (b"a", "g é")

    def test_an_operator_sends_for_a_tenant_that_it_names(self, api: Api) -> None:
        assert api.send("operator", params={"tenant": "bert/../x"}).status_code == 202
        assert api.send("operator", params={"tenant": "é\n"}).status_code == 202
        assert sorted(each.tenant for each in delivered(api)) == ["bert/../x", "é\n"]
        assert "add ?tenant=NAME" in problem(api.send("operator"), 403, "not-allowed")["detail"]

    def test_a_tenant_sends_for_itself_alone(self, api: Api) -> None:
        assert api.send("anna", params={"tenant": "anna"}).status_code == 202
        refused = problem(api.send("anna", params={"tenant": "bert/../x"}), 403, "not-allowed")
        assert "cannot act for another tenant" in refused["detail"]
        assert [each.tenant for each in delivered(api)] == ["anna"]

    def test_a_viewer_sends_nothing_nor_does_who_is_not_known(self, api: Api) -> None:
        problem(api.send("viewer", params={"tenant": "anna"}), 403, "not-allowed")
        problem(api(None, "POST", f"/v1/queues/{QUEUE}/messages"), 401, "credential-refused")
        assert delivered(api) == []

    @pytest.mark.parametrize("version", ["00", "01"])
    def test_the_trace_of_the_request_travels(self, api: Api, version: str) -> None:
        more = "" if version == "00" else "-more"
        answer = api.send("anna", headers={"traceparent": f"{version}{TRACE[2:]}{more}"})
        assert answer.json()["trace"] == TRACE
        assert [each.trace for each in delivered(api)] == [TRACE]

    @pytest.mark.parametrize("header", ["", "nonsense", f"ff{TRACE[2:]}", f"00-{'0' * 32}-{'0' * 16}-00"])
    def test_a_request_without_a_trace_gets_one(self, api: Api, header: str) -> None:
        traces = [api.send("anna", headers={"traceparent": header}).json()["trace"] for _ in range(2)]
        assert len(set(traces)) == 2
        assert sorted(each.trace for each in delivered(api)) == sorted(traces)

    @pytest.mark.parametrize(
        ("header", "seconds"),
        [("2.5", 2.5), ("0", 0), ("-1", 0), ("1e300", 366 * 86400), ("inf", None), ("x", None), ("nan", None)],
    )
    def test_the_time_that_is_left_is_the_deadline(
        self, api: Api, clock: FakeClock, header: str, seconds: float | None
    ) -> None:
        assert api.send("anna", headers={"holdfast-remaining": header}).status_code == 202
        [found] = delivered(api)
        assert found.deadline == (None if seconds is None else pytest.approx(clock.wall() + seconds))

    @pytest.mark.parametrize(
        "params",
        [
            *({"priority": value} for value in ("4", "-1", "x", "", "1.5", "9" * 30)),
            *({"delay": value} for value in ("-1", "nan", "inf", "1e400", "x", "1e9")),
            *({"ttl": value} for value in ("0", "-1", "nan", "1e9")),
            *({"group": value} for value in ("", "a\0b", "x" * 257, "é" * 200)),
        ],
        ids=lambda params: str(params)[:24],
    )
    def test_an_option_that_cannot_be_is_refused(self, api: Api, params: dict[str, str]) -> None:
        problem(api.send("anna", params=params), 400)
        assert delivered(api) == []

    @pytest.mark.parametrize("text", ["%00", "a%00b", "", "%ff%fe", "x" * 257, "%C3%A9" * 200])
    def test_a_tenant_that_cannot_be_is_refused(self, api: Api, text: str) -> None:
        problem(api("operator", "POST", f"/v1/queues/{QUEUE}/messages?tenant={text}", content=b""), 400)
        assert delivered(api) == []

    def test_a_group_that_is_no_text_is_refused(self, api: Api) -> None:
        problem(api("anna", "POST", f"/v1/queues/{QUEUE}/messages?group=%ff", content=b""), 400, "invalid-value")

    @pytest.mark.parametrize("queue", ["a%00", "a%20b", "%ff", "é", "x" * 129, "'%3B--"])
    def test_a_queue_that_cannot_be_is_refused(self, api: Api, queue: str) -> None:
        problem(api("anna", "POST", f"/v1/queues/{queue}/messages", content=b""), 400, "invalid-value")

    def test_an_unknown_queue_is_not_found(self, api: Api) -> None:
        told = problem(api("anna", "POST", "/v1/queues/nowhere/messages", content=b""), 404, "not-found")
        expected = "there is no queue nowhere: an operator creates it with [[queue]] in the settings of the server"
        assert told["detail"] == expected
        batch = {"messages": [{"body": "x"}]}
        for method, path, content in (("POST", "messages/batch", {"json": batch}), ("GET", "messages/1", {})):
            told = problem(api("anna", method, f"/v1/queues/nowhere/{path}", **content), 404, "not-found")
            assert told["detail"] == expected
        assert "queue orders has no message 1 of tenant anna" in problem(api.status("anna", 1), 404)["detail"]

    def test_a_parameter_that_there_is_not_is_named_with_those_there_are(self, api: Api) -> None:
        path = f"/v1/queues/{QUEUE}/messages"
        told = problem(api("anna", "POST", f"{path}?priority=1&prio=1", content=b""), 400, "invalid-value")
        assert told["detail"] == "query parameter 'prio': expected tenant, priority, delay, group or ttl"
        many = api("anna", "POST", f"{path}/batch?priority=1", json={"messages": [{"body": "x"}]})
        assert problem(many, 400, "invalid-value")["detail"] == "query parameter 'priority': expected tenant"
        assert delivered(api) == []
        told = problem(api("anna", "GET", f"{path}/1?tenant=anna"), 400, "invalid-value")
        assert told["detail"] == "query parameter 'tenant': expected none"
        problem(api(None, "POST", f"{path}?prio=1", content=b""), 401)

    def test_every_parameter_that_is_described_is_taken(self, api: Api) -> None:
        query = "tenant=anna&priority=1&delay=0&group=g&ttl=60"
        described = api.app.openapi_schema.to_schema()["paths"]["/v1/queues/{queue}/messages"]["post"]["parameters"]
        assert {each["name"] for each in described if each["in"] == "query"} == {
            part.partition("=")[0] for part in query.split("&")
        }
        assert api("anna", "POST", f"/v1/queues/{QUEUE}/messages?{query}", content=b"").status_code == 202

    def test_a_mebibyte_is_taken_and_a_byte_more_is_not(self, api: Api) -> None:
        assert api.send("anna", bytes(MEBIBYTE)).status_code == 202
        problem(api.send("anna", bytes(MEBIBYTE + 1)), 413)
        assert [len(each.body) for each in delivered(api)] == [MEBIBYTE]


class TestAgain:
    def test_what_is_sent_again_with_its_key_is_kept_once(self, api: Api, clock: FakeClock) -> None:
        key = {"Idempotency-Key": "order-7"}
        first, again = api.send("anna", b"a", headers=key).json(), api.send("anna", b"b", headers=key).json()
        assert (again["id"], again["lane"]) == (first["id"], first["lane"])
        assert (first["is_duplicate"], again["is_duplicate"]) == (False, True)
        assert [each.body for each in delivered(api)] == [b"a"]
        assert api.send("anna", b"c", headers=key).json()["id"] == first["id"], "also while it is handled"
        clock.advance(301)
        assert api.send("anna", b"d", headers=key).json()["id"] != first["id"], "not for ever"

    def test_keys_of_two_tenants_are_two_keys(self, api: Api) -> None:
        key = {"Idempotency-Key": "1"}
        assert not api.send("anna", headers=key).json()["is_duplicate"]
        assert not api.send("bert", headers=key).json()["is_duplicate"]

    @pytest.mark.parametrize("key", ["", "x" * 257, "é" * 200])
    def test_a_key_that_cannot_be_is_refused(self, api: Api, key: str) -> None:
        problem(api.send("anna", headers={"Idempotency-Key": key.encode("latin-1")}), 400)

    def test_at_the_same_time_too(self, api: Api) -> None:
        path, key = f"/v1/queues/{QUEUE}/messages", {"Idempotency-Key": "1"}
        answers = api.together([api.ask("anna", "POST", path, content=b"", headers=key) for _ in range(12)])
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert sum(not answer.json()["is_duplicate"] for answer in answers) == 1
        assert len(delivered(api)) == 1


class TestTooMuch:
    def test_it_is_told_when_to_come_back(self, api: Api, clock: FakeClock) -> None:
        api.backend.change(QUEUE, QueueChange(limits={"anna": Limits(max_rate=0.4, max_burst=1)}))
        assert api.send("anna").status_code == 202
        refused = api.send("anna")
        told = problem(refused, 429, "backpressure")
        assert told["retry_after"] == pytest.approx(2.5)
        assert refused.headers["retry-after"] == "3"
        assert "max_rate" in told["detail"]
        assert api.send("bert").status_code == 202, "whoever else sends is not held back"
        clock.advance(2.5)
        assert api.send("anna").status_code == 202

    def test_a_backlog_that_is_full_is_too_much(self, api: Api) -> None:
        api.backend.change(QUEUE, QueueChange(policy=QueuePolicy(max_waiting=2, rate_under_backpressure=1e6)))
        pressures = [api.send("anna").json()["pressure"] for _ in range(2)]
        assert pressures == [0.5, 1.0]
        assert problem(api.send("anna"), 429, "backpressure")["retry_after"] == 5

    def test_of_several_messages_some_may_be_kept(self, api: Api) -> None:
        api.backend.change(QUEUE, QueueChange(limits={"anna": Limits(max_rate=1, max_burst=2)}))
        answer = api.send_many("anna", *({"body": str(number)} for number in range(3)))
        assert answer.status_code == 202
        told = answer.json()
        assert (told["accepted"], told["refused"]) == (2, 1)
        assert [each["status"] for each in told["results"]] == ["accepted", "accepted", "refused"]
        refused = told["results"][2]
        assert (refused["reason"], refused["retry_after"]) == ("max_rate", pytest.approx(1.0))
        assert [each.body for each in delivered(api)] == [b"0", b"1"]
        problem(api.send_many("anna", {"body": "x"}, {"body": "y"}), 429, "backpressure")


class TestSeveral:
    def test_they_are_kept_in_one_step_as_text_or_as_bytes(self, api: Api, clock: FakeClock) -> None:
        answer = api.send_many(
            "anna",
            {"body": "é\0", "priority": 0},
            {"body": {"base64": base64.b64encode(bytes(range(256))).decode()}, "group": "g", "delay": 5},
            {"body": {"base64": ""}, "ttl": 3600},
            headers={"traceparent": TRACE, "holdfast-remaining": "10"},
        )
        results = answer.json()["results"]
        assert (answer.status_code, [each["is_duplicate"] for each in results]) == (202, [False] * 3)
        assert {each["trace"] for each in results} == {TRACE}
        clock.advance(6)
        found = {each.id: each for each in delivered(api)}
        assert [found[each["id"]].body for each in results] == ["é\0".encode(), bytes(range(256)), b""]
        assert found[results[1]["id"]].group == "g"
        assert {each.tenant for each in found.values()} == {"anna"}
        assert [each.deadline for each in found.values()] == [pytest.approx(clock.wall() + 4)] * 3

    def test_each_may_have_a_key_of_its_own(self, api: Api) -> None:
        messages = [{"body": "a", "key": "1"}, {"body": "b", "key": "2"}, {"body": "c", "key": "1"}]
        first, again = api.send_many("anna", *messages).json(), api.send_many("anna", *messages[:2]).json()
        ids = [each["id"] for each in first["results"]]
        assert ids[0] == ids[2] != ids[1]
        assert [each["is_duplicate"] for each in first["results"]] == [False, False, True]
        assert [each["id"] for each in again["results"]] == ids[:2]
        assert api.send("anna", headers={"Idempotency-Key": "2"}).json()["id"] == ids[1]

    def test_the_key_of_the_request_is_one_for_each_that_has_none(self, api: Api) -> None:
        messages, key = [{"body": "a"}, {"body": "b", "key": "own"}, {"body": "a"}], {"Idempotency-Key": "batch-1"}
        first, again = (api.send_many("anna", *messages, headers=key).json()["results"] for _ in range(2))
        assert [each["id"] for each in first] == [each["id"] for each in again]
        assert [each["is_duplicate"] for each in again] == [True] * 3
        assert len(delivered(api)) == 3
        for single in ("batch-1", "batch-1:0", "batch-1:2"):
            assert not api.send("anna", b"a", headers={"Idempotency-Key": single}).json()["is_duplicate"]
        longest = {"Idempotency-Key": "x" * 256}
        assert api.send_many("anna", *([{"body": ""}] * 1000), headers=longest).json()["accepted"] == 1000
        problem(api.send_many("anna", {"body": ""}, headers={"Idempotency-Key": "x" * 257}), 400)

    def test_what_was_refused_is_sent_again_alone_and_kept(self, api: Api) -> None:
        """In other places than before, which are those of messages that are kept already."""
        key = {"Idempotency-Key": "batch-1"}
        messages = [{"body": f"{number}"} for number in range(6)]
        api.backend.change(QUEUE, QueueChange(limits={"anna": Limits(max_waiting=4)}))
        first = api.send_many("anna", *messages, headers=key).json()
        assert (first["accepted"], first["refused"]) == (4, 2)
        left = [one for one, result in zip(messages, first["results"], strict=True) if result["status"] == "refused"]
        api.backend.change(QUEUE, QueueChange(limits={"anna": None}))
        again = api.send_many("anna", *reversed(left), headers=key).json()["results"]
        assert [each["is_duplicate"] for each in again] == [False, False]
        whole = api.send_many("anna", *reversed(messages), headers=key).json()["results"]
        assert [each["is_duplicate"] for each in whole] == [True] * 6
        assert sorted(each.body for each in delivered(api)) == [b"%d" % number for number in range(6)]

    def test_other_messages_under_a_key_that_was_used_are_kept(self, api: Api) -> None:
        key = {"Idempotency-Key": "batch-1"}
        api.send_many("anna", {"body": "a"}, {"body": "b"}, headers=key)
        others = [{"body": "c"}, {"body": "b", "priority": 0}, {"body": "b", "delay": 9}, {"body": "a", "group": "g"}]
        results = api.send_many("anna", *others, {"body": "a", "ttl": 60}, headers=key).json()["results"]
        assert [each["is_duplicate"] for each in results] == [False] * 5

    @pytest.mark.parametrize(
        ("message", "complaint"),
        [
            ({"body": "x", "tenant": "bert"}, "unknown field `tenant`"),
            ({}, "missing required field `body`"),
            ({"body": None}, "Expected `str | object`, got `null`"),
            ({"body": {}}, "missing required field `base64`"),
            ({"body": {"base64": "", "tenant": "bert"}}, "unknown field `tenant`"),
            *(({"body": {"base64": text}}, "matches the pattern in") for text in ("%%%", "abc", "é", "YQ", "Y Q=")),
            ({"body": {"base64": "YQ==\n"}}, "message 1: base64"),
            ({"body": "x", "key": "é" * 200}, "message 1: deduplication key"),
            ({"body": "x", "key": "a\0"}, "expected text that matches the pattern"),
            ({"body": "x", "group": ""}, "length >= 1"),
            ({"body": "x", "priority": 4}, "<= 3"),
            ({"body": "x", "priority": True}, "Expected `int`"),
            ({"body": "x", "delay": -1}, ">= 0"),
            ({"body": "x", "ttl": 0}, ">= 0.001"),
            ({"body": 1}, "Expected `str | object`, got `int`"),
            (1, "Expected `object`"),
        ],
        ids=str,
    )
    def test_one_that_is_not_valid_keeps_all_from_being_sent(self, api: Api, message: Any, complaint: str) -> None:
        answer = api.send_many("anna", {"body": "good"}, message)
        problem(answer, 400)
        assert complaint in answer.text
        assert delivered(api) == []

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"[]",
            b"{}",
            b"null",
            b'{"messages": []}',
            b'{"messages": [{"body": "x"}], "tenant": "bert"}',
            b'{"messages": [{"body": "\xff"}]}',
            b'{"messages": [{"body": "\\ud800"}]}',
            b'{"messages": ' + b"[" * 100_000,
            b'{"a":' * 100_000,
            b'{"messages": [' + b",".join([b'{"body":""}'] * 1001) + b"]}",
        ],
        ids=lambda content: str(content[:24]),
    )
    def test_a_body_that_is_none_is_refused(self, api: Api, content: bytes) -> None:
        problem(api("anna", "POST", f"/v1/queues/{QUEUE}/messages/batch", content=content), 400)
        assert delivered(api) == []

    def test_a_thousand_are_taken(self, api: Api) -> None:
        assert api.send_many("anna", *([{"body": ""}] * 1000)).json()["accepted"] == 1000

    def test_too_large_a_message_or_request_is_refused(self, api: Api) -> None:
        assert api.send_many("anna", {"body": "x" * MEBIBYTE}, {"body": "y" * MEBIBYTE}).status_code == 202
        told = problem(api.send_many("anna", {"body": "x" * (MEBIBYTE + 1)}), 413)
        assert told["detail"] == "message 0: a body of 1048577 bytes: expected at most 1048576"
        problem(api.send_many("anna", *([{"body": "x" * MEBIBYTE}] * 4)), 413)
        assert len(delivered(api)) == 2


class TestStatus:
    def test_it_says_where_a_message_is_until_it_is_gone(self, api: Api, clock: FakeClock) -> None:
        sent = api.send("anna", params={"delay": 5}).json()["id"]
        at = clock.wall()
        told = api.status("anna", sent).json()
        assert told == {
            "id": sent,
            "queue": QUEUE,
            "tenant": "anna",
            "state": "delayed",
            "attempts": 0,
            "sent_at": at + 5,
            "until": at + 5,
        }
        clock.advance(5)
        assert api.status("anna", sent).json()["state"] == "ready"
        [found] = delivered(api)
        leased = api.status("anna", sent).json()
        assert (leased["state"], leased["attempts"], leased["until"]) == ("leased", 1, at + 35)
        api.backend.settle([Settlement(found.receipt, Bury("broken"))])
        assert api.status("anna", sent).json()["state"] == "dead"
        api("operator", "POST", f"/v1/queues/{QUEUE}/redrive", json={"which": "all", "action": "discard"})
        problem(api.status("anna", sent), 404, "not-found")

    def test_one_behind_others_of_its_group_is_delayed_without_an_end(self, api: Api) -> None:
        _, second = (api.send("anna", params={"group": "g"}).json()["id"] for _ in range(2))
        told = api.status("anna", second).json()
        assert (told["state"], told["until"]) == ("delayed", None)

    def test_of_others_a_tenant_learns_what_it_learns_of_those_that_never_were(self, api: Api) -> None:
        sent = api.send("bert").json()["id"]
        others, none = (problem(api.status("anna", number), 404, "not-found") for number in (sent, sent + 1))
        assert others["detail"].replace(f"message {sent}", f"message {sent + 1}") == none["detail"]
        assert "bert" not in others["detail"]
        assert api.status("bert", sent).status_code == 200
        for who in ("operator", "viewer"):
            assert api.status(who, sent).json()["tenant"] == "bert/../x"

    def test_a_message_of_another_queue_is_not_there(self, api: Api) -> None:
        sent = api.send("anna").json()["id"]
        api.backend.change("other", QueueChange(), create=True)
        problem(api("anna", "GET", f"/v1/queues/other/messages/{sent}"), 404, "not-found")
        problem(api("anna", "GET", f"/v1/queues/nowhere/messages/{sent}"), 404, "not-found")

    @pytest.mark.parametrize("number", ["0", "-1", str(1 << 62), str(1 << 63), "9" * 40, "9" * 5000, "x", "1.5", "%00"])
    def test_what_is_no_number_of_a_message_is_not_found(self, api: Api, number: str) -> None:
        problem(api.status("anna", number), 404)


class Broken:
    """Stands in for a store that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    capabilities = FULL_CAPABILITIES

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> Any:
            raise self.error

        return fail


class TestTrouble:
    @pytest.fixture
    def broken(self, api: Api) -> Broken:
        broken = Broken(EngineUnavailable("away"))
        api.backend = cast("Backend", broken)
        return broken

    def test_a_store_that_is_away_is_worth_another_try(self, api: Api, broken: Broken) -> None:
        for answer in (api.send("anna"), api.status("anna", 1), api.send_many("anna", {"body": ""})):
            problem(answer, 503, "engine-unavailable")
            assert answer.headers["retry-after"] == "1"

    def test_a_store_that_is_full_is_told_apart(self, api: Api, broken: Broken) -> None:
        broken.error = DatabaseFull("/secret/path")
        assert "/secret" not in str(problem(api.send("anna"), 507, "database-full"))

    def test_what_may_have_been_kept_is_safe_to_send_again_with_its_key(self, api: Api, broken: Broken) -> None:
        broken.error = OutcomeUnknown("the reply of /secret/path was lost")
        keyed = [
            api.send("anna", headers={"Idempotency-Key": "1"}),
            api.send_many("anna", {"body": ""}, {"body": "", "key": "x"}, headers={"Idempotency-Key": "1"}),
            api.send_many("anna", {"body": "", "key": "x"}),
        ]
        for answer in keyed:
            told = problem(answer, 500, "outcome-unknown")["detail"]
            assert "send it again with the same key, and it is stored once" in told
            assert "/secret" not in told
        for answer in (api.send("anna"), api.send_many("anna", {"body": "", "key": "x"}, {"body": ""})):
            assert "it may be handled twice" in problem(answer, 500, "outcome-unknown")["detail"]


def test_many_tenants_send_at_once_and_nothing_is_lost(api: Api) -> None:
    path = f"/v1/queues/{QUEUE}/messages"
    asked = [
        api.ask("operator", "POST", path, content=f"{number}".encode(), params={"tenant": f"tenant-{number % 20}"})
        for number in range(100)
    ]
    answers = api.together(asked)
    assert {answer.status_code for answer in answers} == {202}
    found = {each.id: each for each in delivered(api, 200)}
    assert {answer.json()["id"]: str(number).encode() for number, answer in enumerate(answers)} == {
        id_: each.body for id_, each in found.items()
    }
    assert all(each.tenant == f"tenant-{int(each.body) % 20}" for each in found.values())


def test_a_message_is_described_as_bytes_of_any_kind(app: Api) -> None:
    send = app.app.openapi_schema.to_schema()["paths"]["/v1/queues/{queue}/messages"]["post"]
    described = send["requestBody"]["content"]["application/octet-stream"]["schema"]
    assert described == {"type": "string", "format": "binary", "maxLength": MEBIBYTE}
    assert {"202", "400", "401", "403", "404", "413", "429", "500", "503", "507"} == send["responses"].keys()
