"""What dead letters promise: they are kept, can be looked at, and put back."""

import pytest

from holdfast._errors import InvalidValue
from holdfast.queue.message import Bury, Delivery
from holdfast.testing.queue.probe import Depth, Probe, Suite, ids, message


class Letters(Suite):
    """Messages that nobody could handle."""

    def test_a_dead_letter_says_all_that_is_known(self, work: Probe) -> None:
        """What it was, why it was buried and when."""
        work.needs("groups")
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        work.kept(message("shop", b"\0body", priority=1, group="g", trace=trace))
        sent = work.now
        delivery = work.one()
        work.elapse(7.0)
        assert work.settle(Bury("ValueError: no", "Traceback:\n  ä"), delivery) == [True]
        [letter] = work.backend.dead(work.query())
        assert (letter.id, letter.queue, letter.tenant, letter.body) == (delivery.id, "work", "shop", b"\0body")
        assert (letter.priority, letter.group, letter.attempts, letter.trace) == (1, "g", 1, trace)
        assert (letter.reason, letter.detail) == ("ValueError: no", "Traceback:\n  ä")
        assert letter.sent == pytest.approx(sent, abs=0.01)
        assert letter.buried == pytest.approx(sent + 7.0, abs=0.01)
        assert work.depth == Depth(dead=1)
        assert work.tenant("shop").dead == 1

    def test_whatever_a_failure_says_can_be_kept(self, work: Probe) -> None:
        """A message that cannot be buried would come back for ever."""
        odd = "a\0b \ud800 \N{GRINNING FACE}" + "x" * 100_000
        work.put()
        assert work.settle(Bury(odd, odd), work.one()) == [True]
        [letter] = work.backend.dead(work.query())
        assert "\N{GRINNING FACE}" in letter.reason
        assert "\N{GRINNING FACE}" in letter.detail

    def test_dead_letters_are_not_delivered(self, work: Probe) -> None:
        """However long they lie there."""
        self._buried(work, ["a"])
        work.elapse(100_000.0)
        work.backend.sweep("work", work.now)
        assert work.lease() == []
        assert work.depth == Depth(dead=1)

    def test_dead_letters_can_be_looked_for(self, work: Probe) -> None:
        """By tenant, by what the reason contains, by id, by time; all conditions together, or none."""
        buried = self._buried(work, ["a", "b", "a", "c", "b"])
        numbers = ids(buried)
        work.elapse(10.0)
        work.put("a")
        [late] = work.lease()
        work.settle(Bury("100% of_it! failed"), late)

        def found(**conditions: object) -> list[int]:
            return [letter.id for letter in work.backend.dead(work.query(**conditions))]

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
        """In the order of their ids; a page begins after the last one of the page before."""
        numbers = ids(self._buried(work, [f"t{number % 3}" for number in range(10)]))
        for size in (1, 3, 10, 20):
            found: list[int] = []
            while page := work.backend.dead(work.query(after=found[-1] if found else 0, limit=size)):
                assert len(page) <= size
                found += [letter.id for letter in page]
            assert found == numbers

    def test_a_redriven_message_begins_anew(self, work: Probe) -> None:
        """With all its attempts, as a fresh message; but when it was sent is not forgotten."""
        work.policy(attempts=2, fresh_for=60.0)
        work.put("a")
        sent = work.now
        work.settle(Bury("why"), work.one())
        work.elapse(100.0)
        work.put("b")
        work.elapse(100.0)
        assert work.redrive() == 1
        assert work.depth == Depth(ready=2)
        assert work.tenant("a").dead == 0
        for attempt in (1, 2):
            [delivery] = [one for one in work.lease(1, lease=5.0) if one.tenant == "a"]
            assert delivery.attempt == attempt
            assert delivery.sent == pytest.approx(sent, abs=0.01)
            work.elapse(6.0)
        assert work.leased(1).buried == 1
        [letter] = work.backend.dead(work.query())
        assert letter.attempts == 2
        assert letter.sent == pytest.approx(sent, abs=0.01)

    def test_a_redriven_message_is_not_too_old(self, work: Probe) -> None:
        """Somebody wants it handled: its ttl, and that of the queue, begin anew."""
        work.policy(ttl=10.0)
        work.put(count=2)
        work.put(ttl=5.0)
        work.settle(Bury("why"), *work.lease())
        work.elapse(1000.0)
        assert work.redrive() == 3
        assert work.backend.sweep("work") == 0
        assert len(work.lease(1)) == 1
        work.elapse(11.0)
        found = work.leased()
        assert (list(found.deliveries), found.dropped) == ([], 2)

    def test_some_of_the_dead_letters_can_be_put_back(self, work: Probe) -> None:
        """Those that are meant, and no more at once than is asked for."""
        numbers = ids(self._buried(work, ["a", "b", "a", "c", "b"]))
        assert work.redrive(tenant="a", limit=1) == 1
        assert work.redrive(reason="why 3") == 1
        assert work.depth == Depth(ready=2, dead=3)
        assert sorted(ids(work.lease())) == [numbers[0], numbers[3]]
        assert work.redrive(ids=(numbers[1],)) == 1
        assert work.redrive(after=numbers[2]) == 1
        assert [letter.id for letter in work.backend.dead(work.query())] == [numbers[2]]

    def test_some_of_the_dead_letters_can_be_forgotten(self, work: Probe) -> None:
        """By the same conditions; they do not come back."""
        self._buried(work, ["a", "b", "a"])
        assert work.backend.redrive(work.query(tenant="a"), discard=True) == 2
        assert work.depth == Depth(dead=1)
        assert work.backend.redrive(work.query(), discard=True) == 1
        assert work.backend.redrive(work.query(), discard=True) == 0
        assert work.redrive() == 0
        assert work.depth == Depth()
        assert work.lease() == []

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_page_has_at_least_one_letter(self, work: Probe, limit: int) -> None:
        """Nothing is no request, and no way to ask for all."""
        self._buried(work, ["a", "a"])
        with pytest.raises(InvalidValue, match=str(limit)):
            work.backend.dead(work.query(limit=limit))
        with pytest.raises(InvalidValue, match=str(limit)):
            work.redrive(limit=limit)
        assert work.depth == Depth(dead=2)

    def _buried(self, work: Probe, tenants: list[str]) -> list[Delivery]:
        """One dead letter of each of these tenants, in the order of their ids."""
        for tenant in tenants:
            work.put(tenant)
        found = sorted(work.lease(), key=lambda one: one.id)
        for place, one in enumerate(found):
            work.settle(Bury(f"why {place}"), one)
        return found
