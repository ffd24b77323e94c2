"""The promises of inspection: lanes, exact counts, single messages, dead letters."""

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.backend import MessageState, Totals, sum_lanes
from holdfast.queue.message import Ack, Bury, Delivery, RetryLater
from holdfast.queue.policy import Limits
from holdfast.testing.queue.probe import BackendSuite, DepthCounts, Probe, ids, message


class InspectSuite(BackendSuite):
    """Tests of the depth of a queue."""

    def test_an_empty_queue_has_nothing(self, work: Probe) -> None:
        snapshot = work.inspect("nobody")
        assert (snapshot.queue, list(snapshot.lanes), list(snapshot.tenants)) == ("work", [], [])
        assert (list(snapshot.topics), snapshot.lanes_left_out) == ([], 0)
        assert snapshot.totals == Totals()

    def test_all_queues_are_listed_by_name(self, work: Probe) -> None:
        work.another("another")
        assert list(work.backend.list_queues()) == ["another", "work"]

    def test_every_operation_is_counted(self, work: Probe) -> None:
        work.put(count=6)
        work.put(count=2, delay=10.0)
        assert work.depth == DepthCounts(ready=6, delayed=2)
        done, again, bury, *_ = work.lease(5)
        assert work.depth == DepthCounts(ready=1, leased=5, delayed=2)
        work.settle(Ack(), done)
        work.settle(RetryLater(5.0), again)
        work.settle(Bury("why"), bury)
        assert work.depth == DepthCounts(ready=1, leased=2, delayed=3, dead=1)
        tenant = work.tenant()
        assert (tenant.ready, tenant.spilled, tenant.leased, tenant.dead) == (1, 0, 2, 1)

    def test_the_oldest_is_the_one_that_waits_the_longest(self, work: Probe) -> None:
        work.change_policy(lanes=1, lanes_per_tenant=1)
        work.put()
        first = work.now
        work.advance_time(5.0)
        work.put()
        [lane] = work.inspect().lanes
        assert lane.oldest_since == pytest.approx(first, abs=0.01)
        work.lease(1)
        [lane] = work.inspect().lanes
        assert lane.oldest_since == pytest.approx(first + 5.0, abs=0.01)
        work.lease(1)
        [lane] = work.inspect().lanes
        assert (lane.oldest_since, lane.leased) == (None, 2)

    def test_the_tenants_with_the_most_are_listed(self, work: Probe) -> None:
        for place, tenant in enumerate("abcdef"):
            work.put(tenant, 1 + place * 2)
        found = work.backend.inspect("work", tenants=["a", "nobody"], top=2).tenants
        assert [(one.tenant, one.ready) for one in found] == [("f", 11), ("e", 9), ("a", 1)]
        assert list(work.backend.inspect("work", top=0).tenants) == []
        assert [one.tenant for one in work.backend.inspect("work", top=100).tenants] == list("fedcba")
        with pytest.raises(InvalidValue, match="-1"):
            work.backend.inspect("work", top=-1)

    def test_a_tenant_that_is_asked_for_is_listed_once(self, work: Probe) -> None:
        work.put("a")
        work.set_limits("b", concurrency=3)
        found = work.inspect("a", "a", "b").tenants
        assert [(one.tenant, one.limits) for one in found] == [("a", None), ("b", Limits(concurrency=3))]

    def test_single_messages_can_be_found_by_id(self, work: Probe) -> None:
        """Each with its state and until when. Handled messages, and those of other queues, are not found."""
        work.require_capability("groups")
        [elsewhere] = work.another("other").put()
        [done, dead, leased, failed] = work.put(count=4)
        held = {one.id: one for one in work.lease(lease=20.0)}
        work.settle(Ack(), held[done])
        work.settle(Bury("why"), held[dead])
        work.settle(RetryLater(10.0), held[failed])
        [delayed] = work.put("b", delay=5.0)
        waiting, behind = work.put("b", 2, group="g")
        asked = [done, dead, leased, failed, delayed, waiting, behind, elsewhere, 0, -1, 1 << 70]
        now = work.now
        found = work.backend.inspect("work", messages=asked).messages
        assert {number: (one.tenant, one.state, one.attempts) for number, one in found.items()} == {
            dead: ("a", MessageState.DEAD, 1),
            leased: ("a", MessageState.LEASED, 1),
            failed: ("a", MessageState.DELAYED, 1),
            delayed: ("b", MessageState.DELAYED, 0),
            waiting: ("b", MessageState.READY, 0),
            behind: ("b", MessageState.DELAYED, 0),
        }
        untils = {number: None if one.until is None else round(one.until - now, 2) for number, one in found.items()}
        assert untils == {dead: None, leased: 20.0, failed: 10.0, delayed: 5.0, waiting: None, behind: None}
        assert found[failed].sent_at == pytest.approx(now, abs=0.01)
        assert found[delayed].sent_at == pytest.approx(now + 5.0, abs=0.01)
        work.advance_time(15.0)
        assert work.backend.inspect("work", messages=[failed]).messages[failed].state is MessageState.READY

    def test_lanes_can_be_left_out(self, work: Probe) -> None:
        work.put()
        snapshot = work.backend.inspect("work", lanes=False, tenants=["a"])
        assert (list(snapshot.lanes), snapshot.lanes_left_out) == ([], 0)
        assert snapshot.totals == Totals()
        assert [one.tenant for one in snapshot.tenants] == ["a"]

    def test_totals_cover_all_lanes(self, work: Probe) -> None:
        work.change_policy(spill_above=2, lanes=1, lanes_per_tenant=1)
        work.put(count=3)
        first = work.now
        work.settle(Bury("why"), *work.lease(1))
        work.advance_time(5.0)
        work.put("b", 2)
        work.put("c", delay=60.0)
        work.put("a", 3)
        found = work.inspect()
        assert found.totals == sum_lanes(found.lanes)
        totals, tenant = found.totals, work.tenant()
        assert (totals.ready, totals.spilled, totals.waiting) == (3, 4, 7)
        assert (totals.leased, totals.delayed, totals.dead) == (0, 1, 1)
        assert (tenant.ready, tenant.spilled, tenant.waiting) == (1, 4, 5)
        assert totals.lanes_in_use == len(found.lanes) == 2
        assert totals.oldest_since == totals.oldest_ready_since == pytest.approx(first, abs=0.01)


class DeadLetterSuite(BackendSuite):
    """Tests of dead letters."""

    def test_a_dead_letter_has_all_values_of_its_message(self, work: Probe) -> None:
        work.require_capability("groups")
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        work.send_accepted(message("shop", b"\0body", priority=1, group="g", trace=trace))
        sent = work.now
        delivery = work.lease_one()
        work.advance_time(7.0)
        assert work.settle(Bury("ValueError: no", "Traceback:\n  ä"), delivery) == [True]
        [letter] = work.backend.list_dead_letters(work.query())
        assert (letter.id, letter.queue, letter.tenant, letter.body) == (delivery.id, "work", "shop", b"\0body")
        assert (letter.priority, letter.group, letter.attempts, letter.trace) == (1, "g", 1, trace)
        assert (letter.reason, letter.detail) == ("ValueError: no", "Traceback:\n  ä")
        assert letter.sent_at == pytest.approx(sent, abs=0.01)
        assert letter.buried_at == pytest.approx(sent + 7.0, abs=0.01)
        assert work.depth == DepthCounts(dead=1)
        assert work.tenant("shop").dead == 1

    def test_any_text_of_a_failure_can_be_stored(self, work: Probe) -> None:
        """A message that cannot be buried would be delivered for ever."""
        odd = "a\0b \ud800 \N{GRINNING FACE}" + "x" * 100_000
        work.put()
        assert work.settle(Bury(odd, odd), work.lease_one()) == [True]
        [letter] = work.backend.list_dead_letters(work.query())
        assert "\N{GRINNING FACE}" in letter.reason
        assert "\N{GRINNING FACE}" in letter.detail

    def test_dead_letters_are_not_delivered(self, work: Probe) -> None:
        self._buried(work, ["a"])
        work.advance_time(100_000.0)
        work.backend.sweep("work", work.now)
        assert work.lease() == []
        assert work.depth == DepthCounts(dead=1)

    def test_dead_letters_can_be_filtered(self, work: Probe) -> None:
        buried = self._buried(work, ["a", "b", "a", "c", "b"])
        numbers = ids(buried)
        work.advance_time(10.0)
        work.put("a")
        [late] = work.lease()
        work.settle(Bury("100% of_it! failed"), late)

        def found(**conditions: object) -> list[int]:
            return [letter.id for letter in work.backend.list_dead_letters(work.query(**conditions))]

        assert found() == [*numbers, late.id]
        assert found(tenant="a") == [numbers[0], numbers[2], late.id]
        assert found(tenant="nobody") == []
        assert found(reason="why 1") == [numbers[1]]
        assert found(reason="") == [*numbers, late.id]
        assert found(reason="WHY") == []
        for text in ("100%", "of_it", "it!", "% of_"):
            assert found(reason=text) == [late.id]
        assert found(reason="%") == [late.id]
        assert found(reason="_") == [late.id]
        assert found(ids=(numbers[3], numbers[0], 10**9)) == [numbers[0], numbers[3]]
        assert found(buried_before=work.now - 5.0) == numbers
        assert found(tenant="a", reason="why", ids=(numbers[2], numbers[1])) == [numbers[2]]

    def test_dead_letters_come_page_by_page(self, work: Probe) -> None:
        numbers = ids(self._buried(work, [f"t{number % 3}" for number in range(10)]))
        for size in (1, 3, 10, 20):
            found: list[int] = []
            while page := work.backend.list_dead_letters(work.query(after=found[-1] if found else 0, limit=size)):
                assert len(page) <= size
                found += [letter.id for letter in page]
            assert found == numbers

    def test_a_redriven_message_starts_again(self, work: Probe) -> None:
        """It has all its attempts and is fresh, but keeps the time at which it was sent."""
        work.change_policy(max_attempts=2, fresh_for=60.0)
        work.put("a")
        sent = work.now
        work.settle(Bury("why"), work.lease_one())
        work.advance_time(100.0)
        work.put("b")
        work.advance_time(100.0)
        assert work.redrive() == 1
        assert work.depth == DepthCounts(ready=2)
        assert work.tenant("a").dead == 0
        for attempt in (1, 2):
            [delivery] = [one for one in work.lease(1, lease=5.0) if one.tenant == "a"]
            assert delivery.attempt == attempt
            assert delivery.sent_at == pytest.approx(sent, abs=0.01)
            work.advance_time(6.0)
        assert work.request_lease(1).buried == 1
        [letter] = work.backend.list_dead_letters(work.query())
        assert letter.attempts == 2
        assert letter.sent_at == pytest.approx(sent, abs=0.01)

    def test_a_redriven_message_is_not_too_old(self, work: Probe) -> None:
        """Its own ttl, and that of the queue, begin again."""
        work.change_policy(ttl=10.0)
        work.put(count=2)
        work.put(ttl=5.0)
        work.settle(Bury("why"), *work.lease())
        work.advance_time(1000.0)
        assert work.redrive() == 3
        assert work.backend.sweep("work") == 0
        assert len(work.lease(1)) == 1
        work.advance_time(11.0)
        found = work.request_lease()
        assert (list(found.deliveries), found.dropped) == ([], 2)

    def test_some_of_the_dead_letters_can_be_put_back(self, work: Probe) -> None:
        numbers = ids(self._buried(work, ["a", "b", "a", "c", "b"]))
        assert work.redrive(tenant="a", limit=1) == 1
        assert work.redrive(reason="why 3") == 1
        assert work.depth == DepthCounts(ready=2, dead=3)
        assert sorted(ids(work.lease())) == [numbers[0], numbers[3]]
        assert work.redrive(ids=(numbers[1],)) == 1
        assert work.redrive(after=numbers[2]) == 1
        assert [letter.id for letter in work.backend.list_dead_letters(work.query())] == [numbers[2]]

    def test_some_of_the_dead_letters_can_be_discarded(self, work: Probe) -> None:
        self._buried(work, ["a", "b", "a"])
        assert work.backend.redrive(work.query(tenant="a"), discard=True) == 2
        assert work.depth == DepthCounts(dead=1)
        assert work.backend.redrive(work.query(), discard=True) == 1
        assert work.backend.redrive(work.query(), discard=True) == 0
        assert work.redrive() == 0
        assert work.depth == DepthCounts()
        assert work.lease() == []

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_page_has_at_least_one_letter(self, work: Probe, limit: int) -> None:
        self._buried(work, ["a", "a"])
        with pytest.raises(InvalidValue, match=str(limit)):
            work.backend.list_dead_letters(work.query(limit=limit))
        with pytest.raises(InvalidValue, match=str(limit)):
            work.redrive(limit=limit)
        assert work.depth == DepthCounts(dead=2)

    def _buried(self, work: Probe, tenants: list[str]) -> list[Delivery]:
        """Bury one message of each tenant, and return the deliveries in the order of their ids."""
        for tenant in tenants:
            work.put(tenant)
        found = sorted(work.lease(), key=lambda one: one.id)
        for place, one in enumerate(found):
            work.settle(Bury(f"why {place}"), one)
        return found
