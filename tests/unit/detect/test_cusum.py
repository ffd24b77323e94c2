"""How evidence adds up, and how much of it is needed."""

import math

import numpy as np
import pytest

from holdfast.detect.cusum import add_evidence, decay, find_deploy_threshold, find_threshold, get_rising_bins, halve


def test_thresholds_follow_from_the_accepted_number_of_false_isolations() -> None:
    """Those of 200 operations in three zones with 0.2 false isolations in 90 days, and of the pool."""
    assert find_threshold(200, 3, 0.2, 10.0) == pytest.approx(21.6, abs=0.05)
    assert find_threshold(1, 3, 0.2, 10.0) == pytest.approx(16.3, abs=0.05)
    assert find_threshold(0, 3, 0.2, 10.0) == find_threshold(1, 3, 0.2, 10.0)
    assert find_threshold(1, 3, 0.2, 10.0) - find_threshold(1, 3, 2.0, 10.0) == pytest.approx(math.log(10))
    assert find_threshold(1, 3, 0.2, 10.0) - find_threshold(1, 3, 0.2, 60.0) == pytest.approx(math.log(6))
    assert find_deploy_threshold(200, 3, 0.2) == pytest.approx(math.log(450 * 600 / 0.2))
    assert find_deploy_threshold(0, 3, 0.2) == pytest.approx(math.log(450 * 3 / 0.2))


def test_averages_forget_by_time_and_not_by_bins() -> None:
    assert decay(3600, 10) ** 360 == pytest.approx(1 / math.e)
    assert halve(40, 10) ** 4 == pytest.approx(0.5)
    assert halve(40, 40) == pytest.approx(0.5)


def test_evidence_is_summed_while_it_is_positive_up_to_a_ceiling() -> None:
    threshold, ceiling = 20.0, 26.0

    def add(total: float, step: float, seconds: float = 10.0) -> float:
        return float(add_evidence(np.array(total), np.array(step), threshold, ceiling, seconds))

    assert add(0.0, 2.0) == 2.0
    assert add(10.0, 2.0) == pytest.approx(0.995 * 10 + 2)
    assert add(-3.0, 2.0) == 2.0, "healthy bins do not save up for later"
    assert add(1.0, -4.0) == pytest.approx(-3.005)
    assert add(0.0, 100.0) == 12.0, "one bin never suffices"
    assert add(12.0, 100.0) > threshold, "two do"
    assert add(25.0, 100.0) == ceiling
    assert add(10.0, 0.0, 60.0) == pytest.approx(10 * 0.995**6)


def test_a_failure_began_when_the_evidence_for_the_rise_that_it_has_began() -> None:
    """Evidence for a small rise was above zero by chance, long before."""
    evidence = np.array([[10.0, 2.0, -1.0], [9.0, 20.0, -2.0]])
    rising_bins = np.array([[90.0, 90.0, 0.0], [3.0, 4.0, 0.0]])
    assert get_rising_bins(evidence, rising_bins).tolist() == [3.0, 4.0, 0.0]
