"""Operators who act at the same time, are killed and come back never evacuate two zones of a region.

They share one account and one status store; some of them share a journal. A run stops another one only if both affect
the same workload, and only as long as the status says that the zone is out.
"""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Zone
from holdfast.evacuate.journal import CLAIM_SECONDS
from holdfast.evacuate.journals.memory import MemoryJournal
from tests.unit.evacuate.operators import Operator, World, evacuate, restore, resume, use_one_thread, wait

ONE, TWO = Zone("use1-az1"), Zone("use1-az2")

kills = st.none() | st.integers(0, 60)
"""Calls after which the process of a step is killed: a whole evacuation of three resources makes about 60."""
evacuations = st.tuples(
    st.just("evacuate"),
    st.sampled_from([ONE, TWO]),
    st.sampled_from([None, "shop", "blog"]),
    st.sampled_from([0.0, 5.0, 25.0, 40.0]),  # seconds for which a person looks at the plan
    kills,
)
steps = st.one_of(
    evacuations,
    evacuations,
    st.tuples(st.just("resume"), kills),
    st.tuples(st.just("restore"), kills),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 15.0, CLAIM_SECONDS + 1, 13 * 3600.0])),
)


def play(operator: Operator, script: list[Any]) -> None:
    """Carry out the steps of an operator, and in the end undo everything."""
    for name, *values in script:
        operator.world.events.append(f"{operator.name} begins to {name} {values}")
        if name == "evacuate":
            zone, workload, think, kill = values
            operator.perform(evacuate(zone, workload, think), kill)
        elif name == "wait":
            operator.perform(wait(values[0]))
        else:
            operator.perform({"resume": resume, "restore": restore}[name], values[0])
    operator.perform(wait(CLAIM_SECONDS + 1))
    operator.perform(restore)


@settings(max_examples=400)
@given(
    resources=st.integers(1, 3),
    scripts=st.lists(st.lists(steps, min_size=1, max_size=5), min_size=2, max_size=3),
    is_shared=st.booleans(),
    seed=st.integers(0, 1000),
    random=st.randoms(use_true_random=False),
)
def test_no_interleaving_of_operators_evacuates_two_zones(
    resources: int, scripts: list[list[Any]], is_shared: bool, seed: int, random: Any
) -> None:
    """Looks at the zones before every call. In the end, nothing of any evacuation is left."""
    journal = MemoryJournal() if is_shared else None
    with pytest.MonkeyPatch.context() as patch:
        use_one_thread(patch, seed)
        world = World(resources, random.randrange)
        operators = [Operator(f"operator {number}", world, journal) for number in range(len(scripts))]
        pairs = zip(operators, scripts, strict=True)
        world.schedule.run({each.name: partial(play, each, script) for each, script in pairs})
        last = Operator("last", world, journal)
        for each in [last] if is_shared else operators:  # an operator may have been refused while another one worked
            world.schedule.run({each.name: partial(play, each, [])})
            assert each.journal.read_runs().open == (), world.describe()
    assert (world.find_shifted(), world.find_out()) == (set(), set()), world.describe()


def test_two_zones_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    use_one_thread(monkeypatch, 0)
    world = World(2, lambda _: 0)
    operator = Operator("operator", world)

    def evacuate_both() -> None:
        operator.perform(evacuate(ONE, None, 0.0))
        operator.perform(evacuate(TWO, None, 0.0))
        assert world.find_shifted() == {ONE}
        operator.perform(evacuate(TWO, None, 0.0, other_zone="both fail"))

    with pytest.raises(AssertionError, match=r"out: \['use1-az1', 'use1-az2'\]"):
        world.schedule.run({operator.name: evacuate_both})
