"""Whose turn it is: the urgent first, none never, and nobody behind somebody else's backlog."""

from holdfast.queue.policy import Limits
from holdfast.testing.queue.probe import Probe, Suite, ids, message


class Turns(Suite):
    """Messages that wait beside each other."""

    def test_urgent_messages_come_first(self, work: Probe) -> None:
        """Of several tenants, in whatever order they were sent."""
        sent = {priority: work.put(f"t{priority}", 2, priority=priority) for priority in (3, 0, 2, 1)}
        found = ids(work.drain(1))
        assert [sorted(found[place : place + 2]) for place in (0, 2, 4, 6)] == [sent[rank] for rank in range(4)]

    def test_messages_of_one_tenant_and_priority_come_in_their_order(self, work: Probe) -> None:
        """As far as they wait in one lane."""
        work.policy(lanes=1, hand=1)
        sent = [number for _ in range(5) for number in work.put(count=3)]
        assert ids(work.drain(4)) == sent

    def test_less_urgent_messages_are_not_starved(self, work: Probe) -> None:
        """However many urgent ones there are: a share of the turns is theirs, the least urgent first."""
        work.policy(low_share=0.1)
        work.put("urgent", 500, priority=0)
        low = set(work.put("low", 20, priority=3))
        found: list[int] = []
        for _ in range(100):
            found += ids(work.lease(1, before=len(found)))
        assert len(low.intersection(found)) == 10
        assert len(low.intersection(ids(work.lease(100, before=100)))) == 10

    def test_spilled_messages_are_not_starved(self, work: Probe) -> None:
        """However many others there are; and without a share they come last."""
        work.policy(spill_above=10)
        spilled = set(work.put("deep", 60)[10:])
        for tenant in range(40):
            work.put(f"t{tenant}", 10)
        assert not spilled.intersection(ids(work.lease(100)))
        work.policy(spill_share=0.1)
        assert len(spilled.intersection(ids(work.lease(100)))) == 10

    def test_nobody_waits_behind_the_backlog_of_another(self, work: Probe) -> None:
        """A message of a quiet tenant is among the next, whoever came before with ever so many."""
        work.policy(spill_above=None)
        for tenant in range(3):
            work.put(f"noisy {tenant}", 400)
        quiet = [number for tenant in range(20) for number in work.put(f"quiet {tenant}")]
        assert set(quiet) <= set(ids(work.lease(100)))

    def test_somebody_elses_message_is_among_the_next_into_however_many_lanes_they_divide(self, work: Probe) -> None:
        """No lane has a second one before all have had one."""
        work.policy(lanes=64, hand=4, spill_above=None)
        work.put("noisy", 400)
        [quiet] = work.put("quiet")
        assert quiet in ids(work.lease(7))

    def test_one_message_at_a_time_all_lanes_have_their_turn(self, work: Probe) -> None:
        """As they have with many."""
        work.policy(spill_above=None)
        work.put("noisy", 400)
        quiet = [number for tenant in range(10) for number in work.put(f"quiet {tenant}")]
        found: list[int] = []
        for _ in range(40):
            found += ids(work.lease(1))
            work.elapse(0.002)
        assert set(quiet) <= set(found)

    def test_a_lone_tenant_has_all_turns(self, work: Probe) -> None:
        """Nothing is kept back for others that are not there; what it has spilled is served as well."""
        work.policy(spill_above=50)
        sent = work.put(count=200)
        assert sorted(ids(work.lease(200))) == sent

    def test_after_an_outage_what_is_sent_now_comes_first_however_much_a_tenant_has_waiting(self, work: Probe) -> None:
        """More than may wait beside others: what is old is in nobody's way."""
        work.policy(spill_above=10, fresh_for=60.0)
        tenants = [f"t{number}" for number in range(5)]
        old = {number for tenant in tenants for number in work.put(tenant, 30)}
        work.elapse(3600.0)
        fresh = {number for tenant in tenants for number in work.put(tenant, 2)}
        fresh |= {one.id for tenant in tenants for one in work.kept(message(tenant))}
        assert {*ids(work.lease(15))} == fresh
        assert {*ids(work.drain())} == old

    def test_after_an_outage_nobodys_old_messages_wait_behind_all_that_others_have(self, work: Probe) -> None:
        """Of those who sent so much while nobody worked, little is in lanes that others share."""
        work.policy(spill_above=10, fresh_for=60.0, lanes=2, hand=2)
        quiet: list[int] = []
        for minute in range(60):
            work.put("noisy", 20)
            quiet += work.put("quiet") if minute > 54 else []
            work.elapse(60.0)
        assert {*quiet} <= {*ids(work.lease(100))}

    def test_of_what_was_spilled_fresh_messages_come_first_too(self, work: Probe) -> None:
        """And old ones have a share of the turns, if they are to have one."""
        work.policy(fresh_for=60.0)
        work.limit(rate=0.001, burst=1.0)
        old = work.put(count=40)
        work.elapse(61.0)
        fresh = work.put(count=20)
        assert ids(work.lease(1)) == old[:1]
        assert ids(work.lease(5)) == fresh[:5]
        work.policy(old_share=0.2)
        assert sorted(ids(work.lease(10))) == sorted([*old[1:3], *fresh[5:13]])

    def test_fresh_messages_are_found_behind_very_many_lanes_of_old_ones(self, work: Probe) -> None:
        """Where every tenant has a lane of its own, there are more of them than can be looked at each time."""
        work.policy(hand=0)
        work.kept(*(message(f"t{number}") for number in range(600)))
        work.elapse(3600.0)
        fresh = work.put("t599")
        assert ids(work.lease(1)) == fresh

    def test_fresh_messages_are_found_behind_very_many_lanes_that_had_some(self, work: Probe) -> None:
        """What was fresh there is handed out; what came after that is not behind what is old."""
        work.policy(hand=0)
        everybody = [message(f"t{number:04}") for number in range(1100)]
        work.kept(*everybody)
        work.elapse(3600.0)
        work.kept(*everybody)
        for _ in range(11):
            work.done(*work.lease(100))
            work.elapse(0.01)
        fresh = work.put("t1099")
        work.elapse(0.01)
        assert ids(work.lease(1)) == fresh

    def test_fresh_messages_are_found_behind_very_many_tenants_excess(self, work: Probe) -> None:
        """There is a lane for each tenant's."""
        work.policy(limits=Limits(rate=0.001, burst=1.0), hand=0)
        work.kept(*(message(f"t{number % 520}") for number in range(1040)))
        work.done(*work.lease(520))
        assert work.look().totals.spilled == 520
        work.elapse(61.0)
        fresh = work.put("t519")
        assert ids(work.lease(1)) == fresh
