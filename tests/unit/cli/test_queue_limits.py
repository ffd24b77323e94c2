"""`holdfast queue limits|resize` change what is said, from the next message on, and leave the rest."""

from pathlib import Path

import pytest

from holdfast.queue import Limits, OverMaxRate
from holdfast.queue.backend import QueueChange
from holdfast.queue.policy import QueuePolicy
from tests.unit.cli.conftest import Run
from tests.unit.cli.queues import fill, make, of, opened, taken


@pytest.fixture(autouse=True)
def _a_queue(here: Path) -> None:
    make("mail", policy=QueuePolicy(ttl=50.0, limits=Limits(max_rate=100.0)))


def kept(tenant: str = "a") -> tuple[QueuePolicy, Limits | None]:
    with opened() as backend:
        look = backend.inspect("mail", tenants=[tenant])
    return look.policy, next((one.limits for one in look.tenants if one.tenant == tenant), None)


def test_without_anything_to_change_they_are_shown(run: Run) -> None:
    before = kept()
    assert run("queue", "limits", "mail", "--json").result == {
        "queue": "mail",
        "tenant": None,
        "limits": {
            "spill_rate": None,
            "spill_burst": None,
            "max_rate": 100.0,
            "max_burst": None,
            "over_max_rate": "refuse",
            "run_rate": None,
            "run_burst": None,
            "concurrency": None,
            "max_waiting": None,
        },
        "is_own": False,
    }
    ran = run("queue", "limits", "mail", "a")
    assert ran.out.startswith("a has the limits of mail\nlimit")
    rows = dict(line.split() for line in ran.out.splitlines()[2:])
    assert rows == dict.fromkeys(Limits.__struct_fields__, "none") | {"max_rate": "100", "over_max_rate": "refuse"}
    assert kept() == before


def test_a_tenant_gets_limits_of_its_own_beside_those_that_held_for_it(run: Run) -> None:
    ran = run("queue", "limits", "mail", "a", "--spill-rate", "50", "--concurrency", "10")
    assert ran.out.startswith("a has limits of its own\n")
    assert kept()[1] == Limits(max_rate=100.0, spill_rate=50.0, concurrency=10)
    result = run("queue", "limits", "mail", "a", "--spill-rate", "none", "--over-max-rate", "delay", "--json").result
    assert (result["tenant"], result["is_own"]) == ("a", True)
    assert kept() == (
        QueuePolicy(ttl=50.0, limits=Limits(max_rate=100.0)),
        Limits(max_rate=100.0, concurrency=10, over_max_rate=OverMaxRate.DELAY),
    )
    assert kept("b")[1] is None


def test_every_limit_can_be_set(run: Run) -> None:
    words = [
        *(
            "--spill-rate",
            "1.5",
            "--spill-burst",
            "2",
            "--max-rate",
            "3",
            "--max-burst",
            "4",
            "--over-max-rate",
            "delay",
        ),
        *("--run-rate", "5", "--run-burst", "6", "--concurrency", "7", "--max-waiting", "8"),
    ]
    assert len(words) == 2 * len(Limits.__struct_fields__)
    assert run("queue", "limits", "mail", "a", *words).code == 0
    assert kept()[1] == Limits(
        spill_rate=1.5,
        spill_burst=2.0,
        max_rate=3.0,
        max_burst=4.0,
        over_max_rate=OverMaxRate.DELAY,
        run_rate=5.0,
        run_burst=6.0,
        concurrency=7,
        max_waiting=8,
    )


def test_a_tenant_that_is_cleared_has_the_limits_of_the_queue_again(run: Run) -> None:
    run("queue", "limits", "mail", "a", "--spill-rate", "50")
    assert run("queue", "limits", "mail", "a", "--clear", "--json").result["is_own"] is False
    assert kept()[1] is None


def test_the_limits_of_all_tenants_are_those_of_the_queue_and_nothing_else_of_it_changes(run: Run) -> None:
    assert run("queue", "limits", "mail", "--concurrency", "5").code == 0
    assert kept() == (QueuePolicy(ttl=50.0, limits=Limits(max_rate=100.0, concurrency=5)), None)
    assert run("queue", "limits", "mail", "--clear").code == 0
    assert kept() == (QueuePolicy(ttl=50.0), None)


def test_limits_hold_at_once(run: Run) -> None:
    run("queue", "limits", "mail", "a", "--concurrency", "2")
    fill("mail", *of("a", *[b"x"] * 5))
    assert len(taken("mail")) == 2
    run("queue", "limits", "mail", "a", "--concurrency", "3")
    assert len(taken("mail")) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--spill-rate", "0"], "limit spill_rate 0"),
        (["--spill-rate", "-1"], "limit spill_rate -1"),
        (["--concurrency", "0"], "limit concurrency 0"),
        (["--clear", "--spill-rate", "3"], "--clear cannot be combined with limits"),
    ],
)
def test_limits_that_cannot_be_right_change_nothing(run: Run, words: list[str], told: str) -> None:
    before = kept()
    for tenant in ([], ["a"]):
        ran = run("queue", "limits", "mail", *tenant, *words, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert ran.error["detail"].startswith(told)
    assert kept() == before


def test_a_tenant_with_an_empty_name_is_none(run: Run) -> None:
    ran = run("queue", "limits", "mail", "", "--spill-rate", "3", "--json")
    assert (ran.code, ran.error["error"]) == (2, "invalid-value")


class TestResize:
    def test_a_running_queue_gets_more_lanes_and_keeps_what_waits(self, run: Run) -> None:
        fill("mail", *(message for number in range(30) for message in of(f"t{number}", b"x")))
        ran = run("queue", "resize", "mail", "2", "--lanes-per-tenant", "1")
        assert ran.out == "mail: changed from 128 lanes, 4 per tenant, to 2 lanes, 1 per tenant\n"
        fill("mail", *(message for number in range(30) for message in of(f"t{number}", b"y")))
        assert len(taken("mail")) == 60
        assert kept()[0] == QueuePolicy(ttl=50.0, limits=Limits(max_rate=100.0), lanes=2, lanes_per_tenant=1)

    def test_the_hand_stays_as_it_is(self, run: Run) -> None:
        assert run("queue", "resize", "mail", "256", "--json").result == {
            "queue": "mail",
            "lanes": 256,
            "lanes_per_tenant": 4,
            "before": {"lanes": 128, "lanes_per_tenant": 4},
        }

    @pytest.mark.parametrize(
        "words", [["0"], ["3"], ["100000"], ["8", "--lanes-per-tenant", "9"], ["8", "--lanes-per-tenant", "-1"]]
    )
    def test_what_cannot_be_changes_nothing(self, run: Run, words: list[str]) -> None:
        before = kept()
        ran = run("queue", "resize", "mail", *words, "--json")
        assert (ran.code, ran.error["error"]) == (2, "invalid-value")
        assert "expected" in ran.error["detail"]
        assert kept() == before


def test_a_change_that_is_made_meanwhile_elsewhere_is_of_another_tenant(run: Run) -> None:
    with opened() as backend:
        backend.change("mail", QueueChange(limits={"b": Limits(spill_rate=1.0)}))
    run("queue", "limits", "mail", "a", "--spill-rate", "3")
    assert kept("b")[1] == Limits(spill_rate=1.0)
