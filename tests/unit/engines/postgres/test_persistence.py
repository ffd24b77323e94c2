from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.postgres.faults import Remedy
from holdfast.engines.postgres.persistence import RUNS, next_pause

counts = st.integers(1, 10_000)
seconds = st.floats(0, 1e6)
chances = st.floats(0, 1, exclude_max=True)


@given(counts, seconds, seconds, chances)
def test_what_has_no_remedy_is_given_up_at_once(count: int, elapsed: float, patience: float, chance: float) -> None:
    assert next_pause(Remedy.NONE, count, elapsed, patience, chance) is None


@given(seconds, seconds, chances)
def test_the_first_loss_is_mended_at_once_however_short_the_patience(
    elapsed: float, patience: float, chance: float
) -> None:
    assert next_pause(Remedy.RECONNECT, 1, elapsed, patience, chance) == 0.0


@given(st.integers(2, 10_000), seconds, seconds, chances)
def test_a_server_is_waited_for_until_the_patience_is_over(
    count: int, elapsed: float, patience: float, chance: float
) -> None:
    pause = next_pause(Remedy.RECONNECT, count, elapsed, patience, chance)
    if elapsed >= patience:
        assert pause is None
    else:
        assert pause is not None
        assert 0.0 <= pause <= min(2.0, patience - elapsed)


@given(counts, seconds, seconds, chances)
def test_collisions_are_bounded_by_their_number(count: int, elapsed: float, patience: float, chance: float) -> None:
    pause = next_pause(Remedy.RERUN, count, elapsed, patience, chance)
    assert (pause is None) == (count >= RUNS)
    assert pause is None or 0.0 <= pause < 0.5


def test_pauses_double_up_to_two_seconds() -> None:
    pauses = [next_pause(Remedy.RECONNECT, count, 0.0, 60.0, 1.0) for count in range(1, 10)]
    assert pauses == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
