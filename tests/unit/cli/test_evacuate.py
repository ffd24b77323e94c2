"""`holdfast zone plan|evacuate|resume|restore|runs|runbook`: on simulated AWS, without a server of Holdfast."""

import io
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import NotAllowed, SystemClock, Verdict, VerdictKind, Zone, ZoneStatus
from holdfast._plugins import Plugins
from holdfast.engines.aws import AwsOptions, AwsSession
from holdfast.engines.sqlite import SqliteDatabase
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.evacuate.journals.dynamodb import DynamoJournal
from holdfast.simulate.aws.arc import Shift
from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.protocols import Refusal, ServiceError
from holdfast.simulate.aws.region import SimulatedRegion
from holdfast.status import SqlStatusStore
from holdfast.status.stores import STATUS_STORES, StatusStoreType
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.watch import WatchStore
from tests.integration.aurora.linters import lint_policy
from tests.table import rows
from tests.unit.cli.conftest import Ran, Run

ONE, TWO = Zone("use1-az1"), Zone("use1-az2")
WORKLOAD = """
[[workload]]
name = "shop"
region = "us-east-1"
zones = ["use1-az1", "use1-az2", "use1-az3"]
"""
SETTINGS = """
data_directory = "data"
[aws]
endpoint_url = "{url}"
[[evacuation.action]]
name = "status"
[[evacuation.action]]
name = "zonal-shift"
"""
EVERYTHING = ("--reason", "checkout fails", "--yes", "--override", "verdict")


@pytest.fixture(scope="module")
def cloud() -> Iterator[tuple[str, list[SimulatedRegion]]]:
    """The address of simulated AWS, and its accounts, which a test replaces."""
    regions = [SimulatedRegion(SystemClock())]
    with serve(regions) as address:
        yield address, regions


@pytest.fixture
def region(
    cloud: tuple[str, list[SimulatedRegion]], here: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedRegion]:
    """An account with three resources that can be moved and one that cannot, and the store of a server."""
    address, regions = cloud
    region = SimulatedRegion(SystemClock())
    regions[:] = [region]
    for kind, name in (("application", "gate"), ("group", "workers"), ("cluster", "kube")):
        region.add(kind, name)
    region.add("network", "legacy", is_enabled=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", region.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    (here / "holdfast.toml").write_text(SETTINGS.format(url=address) + WORKLOAD)
    (here / "data").mkdir()
    with SqliteDatabase(here / "data" / "status.sqlite") as database:
        SqlStatusStore(database)
    yield region
    for shift in region.arc.shifts:
        assert shift.comment.startswith("hf-") or shift.status == "ACTIVE", "a shift of others was cancelled"


class Terminal(io.StringIO):
    """Standard input of a person who types one line."""

    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{line}\n"))


def evacuate(run: Run, zone: str = ONE, *words: str) -> Ran:
    return run("zone", "evacuate", zone, *EVERYTHING, *words)


def list_active(region: SimulatedRegion) -> list[Shift]:
    return [each for each in region.arc.shifts if each.status == "ACTIVE"]


def find_out(run: Run) -> list[str]:
    """Return the zones that are out, by the status store."""
    return [each["zone"] for each in run("zone", "status", "--json").result if each["state"] == "out"]


def deny(name: str) -> Callable[[str], None]:
    def refuse(operation: str) -> None:
        if operation == name:
            raise ServiceError(Refusal.DENIED)

    return refuse


def record_verdict(here: Path, kind: VerdictKind = VerdictKind.ISOLATED, zone: Zone = ONE) -> None:
    verdict = Verdict(id="v", workload="shop", kind=kind, zone=zone, since=0.0, at=time.time(), summary="40 % fail")
    with SqliteDatabase(here / "data" / "watch.sqlite") as database:
        WatchStore(database).record("shop", "calibrated", {}, 20.0, opened=None, closed=[], current=verdict)


class TestPlan:
    @pytest.mark.usefixtures("region")
    def test_people_see_every_change_its_side_effects_what_stays_and_what_guards_found(self, run: Run) -> None:
        ran = run("zone", "plan", "use1-az1", "--workload", "shop")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Evacuation of use1-az1 for shop: 4 changes\n")
        table = [re.split(r"  +", line.strip()) for line in ran.out.split("\n\n")[1].splitlines()]
        assert table == [
            ["type", "resource", "account", "change"],
            ["status", "database", "mark use1-az1 as out for shop"],
            *[
                [kind, name, "123456789012", "start a zonal shift away from use1-az1 for 12h"]
                for kind, name in (
                    ("auto-scaling-group", "workers"),
                    ("eks-cluster", "kube"),
                    ("load-balancer", "gate"),
                )
            ],
        ]
        effects = ran.out.split("Side effects:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split(":")[0].strip() for line in effects] == [
            "auto-scaling-group",
            "eks-cluster",
            "load-balancer",
            "load-balancer",
        ]
        assert "load-balancer legacy: zonal shift is not enabled for it\n" in ran.out
        assert "    aws elbv2 modify-load-balancer-attributes --load-balancer-arn arn:aws:elastic" in ran.out
        assert "Notes:\n" in ran.out
        assert "WARNING: shop has no `workload.resources`" in ran.out
        guards = {words[1]: words[0] for line in ran.out.splitlines() if len(words := line.split(maxsplit=2)) == 3}
        expected = dict.fromkeys(("other-zone", "last-zone", "unreadable", "pause"), "passes") | {"verdict": "REFUSES"}
        assert expected.items() <= guards.items()
        for found in ("4 resources", "2 other zones: use1-az2, use1-az3", "2 actions", "--server URL"):
            assert found in ran.out

    def test_programs_get_the_same_and_nothing_is_changed(self, run: Run, region: SimulatedRegion, here: Path) -> None:
        shown = run("zone", "plan", "use1-az1", "--json").result
        changes = {
            name: [each["resource"]["name"] for each in found] for name, found in shown["plan"]["changes"].items()
        }
        assert changes == {"status": ["database"], "zonal-shift": ["workers", "kube", "gate"]}
        assert all(each["side_effects"] for each in shown["plan"]["changes"]["zonal-shift"])
        (stays,) = shown["plan"]["unmovable"]
        assert stays["remedy"].startswith("aws elbv2 modify-load-balancer-attributes")
        assert {each["name"]: each["passed"] for each in shown["guards"]} == {
            "other-zone": True,
            "last-zone": True,
            "verdict": False,
            "unreadable": True,
            "capacity": True,
            "pause": True,
        }
        assert shown["verdict"] is None
        assert {name for name in region.calls if not name.startswith(("Get", "List", "Describe"))} == set()
        assert run("zone", "runs", "--json").result == []
        assert find_out(run) == []

    def test_an_account_that_cannot_be_read_refuses_with_its_reason(self, run: Run, region: SimulatedRegion) -> None:
        region.faults = deny("ListManagedResources")
        shown = run("zone", "plan", "use1-az1", "--json").result
        (guard,) = (each for each in shown["guards"] if each["name"] == "unreadable")
        assert not guard["passed"]
        assert "the account of [aws] in us-east-1" in guard["finding"]
        assert guard["remedy"]

    def test_the_verdict_of_the_store_decides(self, run: Run, region: SimulatedRegion, here: Path) -> None:
        record_verdict(here)
        shown = run("zone", "plan", "use1-az1", "--json").result
        assert (shown["verdict"]["zone"], [each["passed"] for each in shown["guards"]]) == (ONE, [True] * 6)
        other = run("zone", "plan", "use1-az2", "--json").result["guards"]
        (guard,) = (each for each in other if not each["passed"])
        assert "use1-az1" in guard["finding"]
        assert run("zone", "evacuate", "use1-az1", "--reason", "it fails", "--yes").code == 0
        assert len(list_active(region)) == 3


class TestChoice:
    """The resources that a person or the settings choose."""

    def list_names(self, run: Run, *words: str) -> set[str]:
        shown = run("zone", "plan", "use1-az1", "--json", *words).result["plan"]
        return {each["resource"]["name"] for found in shown["changes"].values() for each in found}

    @pytest.mark.usefixtures("region")
    def test_resources_are_chosen_by_type_and_name(self, run: Run) -> None:
        assert self.list_names(run, "--type", "load-balancer") == {"gate", "database"}, "the status store is the lock"
        chosen = self.list_names(run, "--type", "load-balancer", "--type", "eks-cluster")
        assert chosen == {"gate", "kube", "database"}
        assert self.list_names(run, "--name", "k*") == {"kube", "database"}
        refused = run("zone", "plan", "use1-az1", "--type", "balancer")
        assert (refused.code, "nothing in use1-az1 has the type balancer: expected one of" in refused.err) == (2, True)
        shown = run("zone", "plan", "use1-az1", "--name", "k*").out
        assert "Selected: names k*. Status stores" in shown

    @pytest.mark.usefixtures("region")
    def test_a_choice_without_any_resource_is_refused(self, run: Run) -> None:
        refused = evacuate(run, ONE, "--name", "shpo-*")
        assert (refused.code, refused.err) == (2, "holdfast: nothing in use1-az1 matches names shpo-*\n")
        assert run("zone", "runs", "--json").result == []

    @pytest.mark.usefixtures("region")
    def test_a_plan_names_the_evacuation_that_is_open(self, run: Run) -> None:
        evacuate(run)
        ran = run("zone", "plan", ONE)
        assert "use1-az1 is evacuated already, and this plan does not show what was moved: run hf-use1-az1-" in ran.err
        assert "undo it with `holdfast zone restore use1-az1`" in ran.err

    def test_resources_are_chosen_by_tag(self, run: Run, region: SimulatedRegion) -> None:
        for name in ("one", "two"):
            region.add("application", name, tags={"service": "shop", "stage": name})
        assert self.list_names(run, "--tag", "service=shop") == {"one", "two", "database"}
        assert self.list_names(run, "--tag", "service=shop", "--tag", "stage=two") == {"two", "database"}
        refused = run("zone", "plan", "use1-az1", "--tag", "service")
        assert (refused.code, refused.err) == (2, "holdfast: --tag service: expected KEY=VALUE\n")

    def test_a_workload_has_its_own_resources(self, run: Run, region: SimulatedRegion, here: Path) -> None:
        region.add("application", "shop-gate", tags={"service": "shop"})
        with (here / "holdfast.toml").open("a") as file:
            file.write('[workload.resources]\ntags = { service = "shop" }\n')
        assert self.list_names(run, "--workload", "shop") == {"shop-gate", "database"}
        assert self.list_names(run) == {"shop-gate", "gate", "workers", "kube", "database"}, "for all workloads"
        refused = run("zone", "plan", "use1-az1", "--workload", "shop", "--tag", "service=blog")
        assert (refused.code, "service=shop" in refused.err) == (2, True)
        report = evacuate(run, ONE, "--workload", "shop", "--json").result
        assert report["run"]["selection"] == {"types": [], "names": [], "tags": {"service": "shop"}}
        assert [each.resource.rpartition("/")[0].rpartition("/")[2] for each in list_active(region)] == ["shop-gate"]


CAPACITY = "".join(
    f'[[evacuation.action]]\nname = "{name}"\n'
    for name in ("capacity", "auto-scaling-groups", "ecs-services", "lambda-functions")
)


class TestCapacity:
    """All actions that move capacity, with the guard that asks whether there is enough."""

    @pytest.fixture
    def sizes(self, region: SimulatedRegion, here: Path) -> Callable[[], list[Any]]:
        """A function that returns the subnets and sizes of everything."""
        file = here / "holdfast.toml"
        file.write_text(file.read_text().replace("[[workload]]", f"{CAPACITY}[[workload]]"))
        zones = dict.fromkeys(region.zones.values(), 2)
        group = region.groups.add("jobs", zones, min_size=2, max_size=9)
        service = region.ecs.add("main", "web", desired=6)
        function = region.functions.add("cart")
        # The clock is real here, so everything is done at once.
        region.groups.get(group).launch_seconds = region.ecs.deploy_seconds = region.functions.update_seconds = 0.0

        def read() -> list[Any]:
            found = region.groups.get(group)
            return [
                found.subnets,
                found.min_size,
                (region.ecs.services[service].network or {})["subnets"],
                region.functions.functions[function].subnets,
            ]

        return read

    def test_without_enough_capacity_a_guard_refuses(self, run: Run, sizes: Callable[[], list[Any]]) -> None:
        before = sizes()
        refused = evacuate(run)
        assert (refused.code, sizes()) == (1, before)
        assert "jobs has 4 healthy units in the other zones, and needs 6.6 with the margin of 10 % (" in refused.err
        assert "this is weak evidence" in refused.err
        assert refused.err.rstrip().endswith("add --override capacity")

    def test_everything_leaves_the_zone_and_returns(self, run: Run, sizes: Callable[[], list[Any]]) -> None:
        before = sizes()
        report = evacuate(run, ONE, "--override", "capacity", "--json").result
        assert {each["state"] for each in report["entries"]} == {"applied"}
        group, smallest, service, function = sizes()
        assert (len(group), smallest, len(service), len(function)) == (2, 6, 2, 2)
        restored = run("zone", "restore", ONE, "--json")
        assert {each["state"] for each in restored.result["entries"]} == {"restored"}
        assert sizes() == before

    def test_a_subnet_that_was_deleted_meanwhile_is_named(
        self, run: Run, region: SimulatedRegion, sizes: Callable[[], list[Any]]
    ) -> None:
        before = sizes()
        evacuate(run, ONE, "--override", "capacity")
        (deleted,) = {*before[0]} - {*sizes()[0]}
        del region.subnets[deleted]
        restored = run("zone", "restore", ONE)
        assert restored.code == 0
        names = "auto-scaling-group jobs, ecs-service web, lambda-function cart"
        assert f"  restored: {names}: {deleted} cannot be added again: deleted, or in another VPC now\n" in restored.out


class TestEvacuate:
    def test_without_a_verdict_yes_is_not_enough(self, run: Run, region: SimulatedRegion) -> None:
        ran = run("zone", "evacuate", "use1-az1", "--reason", "checkout fails", "--yes")
        assert ran.code == 1
        assert "Guards:" in ran.out
        assert ran.err.rstrip().endswith("add --override verdict")
        refused = run("zone", "evacuate", "use1-az1", "--reason", "checkout fails", "--yes", "--json").error
        assert refused["error"] == "conflict"
        assert "there is no verdict" in refused["detail"]
        assert (region.arc.shifts, find_out(run), run("zone", "runs", "--json").result) == ([], [], [])

    def test_everything_is_moved_recorded_and_told(self, run: Run, region: SimulatedRegion) -> None:
        ran = evacuate(run)
        assert (ran.code, ran.err) == (0, "")
        (recorded,) = run("zone", "runs", "--json").result
        assert f"use1-az1 is evacuated for all workloads: run {recorded['id']} (journal: database)\n" in ran.out
        for kind in ("auto-scaling-group", "eks-cluster", "load-balancer", "status"):
            assert f"  {kind}: 1 changed\n" in ran.out
        assert ran.out.endswith("To undo this evacuation: holdfast zone restore use1-az1\n")
        assert {each.comment for each in list_active(region)} == {f"{recorded['id']} holdfast checkout fails"}
        assert {each.zone for each in list_active(region)} == {ONE}
        assert len(list_active(region)) == 3
        (status,) = run("zone", "status", "--json").result
        assert (status["state"], status["by"]) == ("out", recorded["id"])
        assert status["reason"] == f"checkout fails (run {recorded['id']})"
        assert (recorded["state"], recorded["reason"]) == ("evacuated", "checkout fails")
        assert (recorded["by_server"], recorded["overrides"]) == (False, {"verdict": "checkout fails"})
        assert "@" in recorded["by"]

    def test_programs_get_the_entry_of_every_resource(self, run: Run, region: SimulatedRegion) -> None:
        report = evacuate(run, ONE, "--workload", "shop", "--json").result
        assert Counter(each["state"] for each in report["entries"]) == {"applied": 4}
        assert (report["run"]["workload"], report["run"]["state"]) == ("shop", "evacuated")
        ids = {each["record"]["id"] for each in report["entries"] if each["action"] == "zonal-shift"}
        assert ids == {each.id for each in region.arc.shifts}

    def test_a_person_is_told_that_there_is_no_verdict_and_may_decide_without_one(
        self, run: Run, region: SimulatedRegion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = ("zone", "evacuate", "use1-az1", "--reason", "checkout fails")
        for line in ("n", "", "sure"):
            answer(monkeypatch, line)
            ran = run(*words)
            assert (ran.code, ran.out.splitlines()[-1]) == (0, "Nothing was changed.")
            assert "no verdict" in ran.err.lower()
            assert ran.err.endswith("Evacuate use1-az1 for all workloads? [y/N] ")
        assert (region.arc.shifts, find_out(run), run("zone", "runs", "--json").result) == ([], [], [])
        answer(monkeypatch, "y")
        assert run(*words).code == 0
        (recorded,) = run("zone", "runs", "--json").result
        assert recorded["overrides"] == {"verdict": "checkout fails"}
        assert len(list_active(region)) == 3

    def test_a_person_is_not_asked_about_a_verdict_that_is_there(
        self, run: Run, region: SimulatedRegion, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record_verdict(here)
        answer(monkeypatch, "yes")
        ran = run("zone", "evacuate", "use1-az1", "--reason", "checkout fails")
        assert (ran.code, ran.err) == (0, "Evacuate use1-az1 for all workloads? [y/N] ")
        record_verdict(here, VerdictKind.REGIONAL)
        answer(monkeypatch, "yes")
        refused = run("zone", "evacuate", "use1-az2", "--reason", "checkout fails", "--override", "other-zone")
        assert refused.code == 1, "a person does not replace a verdict that says something else"
        assert refused.err.rstrip().endswith("add --override verdict --override pause")

    def test_without_a_terminal_nothing_is_asked_and_nothing_is_read(self, run: Run, region: SimulatedRegion) -> None:
        ran = run("zone", "evacuate", "use1-az1", "--reason", "checkout fails")
        assert (ran.code, "add --yes" in ran.err) == (2, True)
        assert list(region.calls) == []

    def test_a_second_zone_is_refused_and_the_run_of_the_first_is_named(
        self, run: Run, region: SimulatedRegion
    ) -> None:
        evacuate(run)
        (first,) = run("zone", "runs", "--json").result
        refused = evacuate(run, TWO, "--json").error
        assert first["id"] in refused["detail"]
        assert refused["detail"].endswith("add --override other-zone --override pause")
        assert (find_out(run), {each.zone for each in list_active(region)}) == ([ONE], {ONE})
        overrides = ("--override", "other-zone", "--override", "pause")
        assert evacuate(run, TWO, *overrides).code == 0
        assert find_out(run) == [ONE, TWO]
        assert {each.zone for each in list_active(region)} == {ONE}, "a resource has one shift, and keeps its first"

    def test_an_evacuated_zone_is_brought_in_by_restore_or_by_force(self, run: Run, region: SimulatedRegion) -> None:
        evacuate(run)
        refused = run("zone", "in", "use1-az1", "--reason", "it is well", "--json").error
        assert refused["error"] == "conflict"
        assert "`holdfast zone restore use1-az1`" in refused["detail"]
        assert find_out(run) == [ONE]
        assert run("zone", "in", "use1-az1", "--reason", "the journal is lost", "--force").code == 0
        assert (find_out(run), len(list_active(region))) == ([], 3)

    def test_a_resource_that_fails_is_told_with_what_to_do_and_resume_makes_up_for_it(
        self, run: Run, region: SimulatedRegion
    ) -> None:
        started = iter(range(100))

        def refuse_the_first(operation: str) -> None:
            if operation == "StartZonalShift" and next(started) == 0:
                raise ServiceError(Refusal.DENIED)

        region.faults = refuse_the_first
        ran = evacuate(run)
        assert ran.code == 1
        assert re.search(r"\n  failed: (auto-scaling-group|eks-cluster|load-balancer) \w+: .*StartZonalShift", ran.out)
        assert "1 of 4 resources" in ran.err
        assert "`holdfast zone resume use1-az1`" in ran.err
        assert (len(list_active(region)), find_out(run)) == (2, [ONE])
        assert list_states(run) == ["partly evacuated"]
        resumed = run("zone", "resume", "use1-az1")
        assert (resumed.code, resumed.err, len(list_active(region))) == (0, "", 3)
        assert list_states(run) == ["evacuated"]

    def test_what_expires_is_renewed_until_ctrl_c(
        self, run: Run, region: SimulatedRegion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr("holdfast.cli.evacuations.time.sleep", sleep)
        ran = evacuate(run, ONE, "--stay")
        assert "until Ctrl-C" in ran.err
        assert Counter(region.calls)["UpdateZonalShift"] == 2 * 3
        assert len(set(pauses)) == 1
        assert len(list_active(region)) == 3, "the zone stays evacuated"

    @pytest.mark.parametrize(
        ("missing", "code", "told"),
        [
            (True, 1, "there is no store at data/status.sqlite"),
            (False, 0, ""),
        ],
    )
    def test_a_status_that_no_server_reads_is_not_written(
        self, run: Run, region: SimulatedRegion, here: Path, missing: bool, code: int, told: str
    ) -> None:
        (here / "data" / "status.sqlite").unlink()
        if not missing:
            settings = (here / "holdfast.toml").read_text().replace('[[evacuation.action]]\nname = "status"\n', "")
            (here / "holdfast.toml").write_text(settings)
        ran = evacuate(run)
        assert (ran.code, told in ran.err) == (code, True)
        assert len(list_active(region)) == (0 if missing else 3)
        assert not (here / "data" / "status.sqlite").exists()

    @rows(
        "words, code, told",
        [
            (("plan", "us-east-1a"), 2, "us-east-1a is the name of a zone"),
            (("plan", "use1-az1", "use1-az2"), 2, "give one zone"),
            (("plan", "use1-az9"), 1, "no zone use1-az9 is configured"),
            (("plan", "use1-az1", "--workload", "cart"), 1, "no workload cart is configured"),
            (("plan", "use1-az1", "--workload", "a b"), 2, "workload 'a b'"),
            (("evacuate", "use1-az1"), 2, "--reason is needed"),
            (("evacuate", "use1-az1", "--reason", " ", "--yes"), 2, "--reason is empty"),
            (("evacuate", "use1-az1", "--reason", "x", "y", "--yes"), 2, "give one zone"),
            (("evacuate", "use1-az1", "--reason", "x", "--yes", "--override", "luck"), 2, "luck"),
            (("resume",), 1, "there is no open evacuation"),
            (("resume", "use1-az1"), 1, "Open: none"),
            (("restore", "use1-az1"), 1, "there is no open evacuation of use1-az1"),
            (("restore", "--all"), 1, "there is no open evacuation"),
            (("restore",), 2, "--all"),
            (("restore", "use1-az1", "--all"), 2, "--all"),
            (("runbook", "cart"), 1, "no workload cart is configured"),
        ],
    )
    def test_a_wrong_command_is_refused_and_nothing_is_changed(
        self, run: Run, region: SimulatedRegion, words: tuple[str, ...], code: int, told: str
    ) -> None:
        ran = run("zone", *words)
        assert (ran.code, told in ran.err) == (code, True), ran.err
        assert (region.arc.shifts, find_out(run)) == ([], [])


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class TestResume:
    def test_an_interrupted_run_is_finished(
        self, run: Run, region: SimulatedRegion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ZonalShift, "apply", interrupt)
            ran = evacuate(run)
        assert ran.code == 130
        assert "holdfast zone resume use1-az1" in ran.err
        assert (find_out(run), list_active(region)) == ([ONE], [])
        assert [each["state"] for each in run("zone", "runs", "--json").result] == ["evacuating"]
        assert list_states(run) == ["interrupted while evacuating"]
        again = evacuate(run, ONE, "--override", "pause")
        assert (again.code, "`holdfast zone resume use1-az1`" in again.err) == (1, True)
        report = run("zone", "resume", "--json").result
        assert (report["run"]["state"], Counter(each["state"] for each in report["entries"])) == (
            "evacuated",
            {"applied": 4},
        )
        assert len(list_active(region)) == 3

    def test_shifts_that_ended_are_started_again_and_the_others_are_renewed(
        self, run: Run, region: SimulatedRegion
    ) -> None:
        evacuate(run)
        ended, *left = list_active(region)
        ended.status = "EXPIRED"
        for each in left:
            each.expiry -= 3600
        before = [each.expiry for each in left]
        assert run("zone", "resume", "use1-az1").code == 0
        assert len(list_active(region)) == 3
        assert all(each.expiry > old for each, old in zip(left, before, strict=True))

    def test_a_restore_that_was_interrupted_is_finished_or_undone(
        self, run: Run, region: SimulatedRegion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        evacuate(run)
        with monkeypatch.context() as patch:
            patch.setattr(ZonalShift, "restore", interrupt)
            assert run("zone", "restore", "use1-az1").code == 130
        assert run("zone", "resume", "use1-az1").code == 0
        assert (find_out(run), len(list_active(region))) == (["use1-az1"], 3)
        assert run("zone", "restore", "use1-az1").code == 0
        assert (find_out(run), list_active(region)) == ([], [])


class TestRestore:
    def test_a_zone_is_brought_back_with_all_its_resources(self, run: Run, region: SimulatedRegion) -> None:
        evacuate(run)
        ran = run("zone", "restore", "use1-az1")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("use1-az1 is restored for all workloads: run hf-use1-az1-")
        for kind in ("auto-scaling-group", "eks-cluster", "load-balancer", "status"):
            assert f"  {kind}: 1 restored\n" in ran.out
        assert (find_out(run), list_active(region)) == ([], [])
        again = run("zone", "restore", "use1-az1", "--json").error
        assert again["error"] == "not-found"
        assert "journal: database" in again["detail"]

    def test_all_zones_are_brought_back(self, run: Run, region: SimulatedRegion) -> None:
        evacuate(run)
        evacuate(run, TWO, "--override", "other-zone", "--override", "pause")
        ran = run("zone", "restore", "--all")
        assert ran.code == 0
        assert re.findall(r"^(\S+) is restored", ran.out, re.MULTILINE) == [TWO, ONE], "the newest first"
        assert (find_out(run), list_active(region)) == ([], [])

    def test_only_some_types_of_resources_are_brought_back(self, run: Run, region: SimulatedRegion) -> None:
        evacuate(run, ONE, "--workload", "shop")
        other = run("zone", "restore", "use1-az1", "--workload", "blog")
        assert (other.code, "shop" in other.err) == (1, True)
        ran = run("zone", "restore", "use1-az1", "--workload", "shop", "--type", "eks-cluster", "--type", "status")
        assert ran.code == 0, ran.err
        assert "  eks-cluster: 1 restored\n" in ran.out
        assert (find_out(run), len(list_active(region))) == ([], 2)
        assert list_states(run) == ["partly evacuated"]
        assert [each["state"] for each in run("zone", "runs", "--json").result] == ["evacuated"]
        assert run("zone", "restore", "use1-az1").code == 0
        assert list_states(run) == ["restored"]
        assert list_active(region) == []

    def test_changes_of_others_are_kept_and_told(self, run: Run, region: SimulatedRegion) -> None:
        evacuate(run)
        ours = list_active(region)[0]
        ours.status = "CANCELED"
        theirs = region.arc.start_shift(ours.resource, ONE, "I am on it")
        ran = run("zone", "restore", "use1-az1")
        assert ran.code == 0
        assert "I am on it" in ran.out
        assert list_active(region) == [theirs]

    def test_a_resource_that_cannot_be_restored_is_told_with_what_to_do(
        self, run: Run, region: SimulatedRegion
    ) -> None:
        evacuate(run)
        region.faults = deny("CancelZonalShift")
        ran = run("zone", "restore", "use1-az1")
        assert ran.code == 1
        assert "3 of 4 resources" in ran.err
        assert "`holdfast zone restore use1-az1`" in ran.err
        assert len(list_active(region)) == 3
        region.faults = lambda _: None
        assert run("zone", "restore", "use1-az1").code == 0
        assert list_active(region) == []


def list_states(run: Run) -> list[str]:
    """Return the states that people see, of all runs."""
    return [re.split(r"  +", line.strip())[3] for line in run("zone", "runs").out.splitlines()[1:]]


class TestRuns:
    @pytest.mark.usefixtures("region")
    def test_open_and_restored_runs_are_listed_the_latest_first(self, run: Run) -> None:
        assert run("zone", "runs").out == "there are no evacuations yet (journal: database)\n"
        evacuate(run, ONE, "--workload", "shop")
        run("zone", "restore", "use1-az1")
        evacuate(run, TWO, "--override", "pause")
        header, *table = (re.split(r"  +", line.strip()) for line in run("zone", "runs").out.splitlines())
        assert header == ["run", "zone", "workload", "state", "started", "by", "reason"]
        assert [(row[1], row[2], row[3], row[-1]) for row in table] == [
            (TWO, "(all)", "evacuated", "checkout fails"),
            (ONE, "shop", "restored", "checkout fails"),
        ]


def extract(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


class TestRunbook:
    def test_it_has_the_commands_of_every_zone_a_valid_policy_and_lines_for_terraform(
        self, run: Run, here: Path
    ) -> None:
        """Takes a second: parliament has a large file with all actions of AWS."""
        actions = '[[evacuation.action]]\nname = "status"\n[[evacuation.action]]\nname = "zonal-shift"\n'
        account = '[[evacuation.account]]\nrole_arn = "arn:aws:iam::210987654321:role/holdfast"\n'
        journal = '[evacuation]\njournal = "dynamodb:runs"\n'
        (here / "holdfast.toml").write_text(journal + actions + account + WORKLOAD)
        ran = run("zone", "runbook", "shop")
        assert (ran.code, ran.err) == (0, "")
        for zone in ("use1-az1", "use1-az2", "use1-az3"):
            for command in (f"plan {zone}", f'evacuate {zone} --workload shop --reason "..."', f"restore {zone}"):
                assert f"$ holdfast zone {command}" in ran.out
        for fact in ("us-east-1", "status, zonal-shift", "dynamodb:runs", "arn:aws:iam::210987654321:role/holdfast"):
            assert fact in ran.out
        policy = json.loads(extract(ran.out, "json"))
        issues = {issue for issue, _ in lint_policy(policy)}
        assert issues <= {"RESOURCE_STAR", "CREDENTIALS_EXPOSURE"}, "lists need all resources, and roles are assumed"
        statement, assume = policy["Statement"]
        assert assume["Action"] == "sts:AssumeRole"
        assert {"arc-zonal-shift:StartZonalShift", "dynamodb:PutItem", "eks:ListClusters"} <= set(statement["Action"])
        assert 'resource "aws_lb"' in extract(ran.out, "terraform")
        assert run("zone", "runbook").out == ran.out, "there is only one workload"

    def test_an_evacuation_without_aws_needs_no_policy_and_no_terraform(self, run: Run, here: Path) -> None:
        (here / "holdfast.toml").write_text(WORKLOAD)
        ran = run("zone", "runbook")
        assert json.loads(extract(ran.out, "json"))["Statement"] == []
        assert "terraform" not in ran.out.lower()

    def test_the_workload_is_named_if_there_are_none_or_several(self, run: Run, here: Path) -> None:
        assert "add a [[workload]]" in run("zone", "runbook").err
        (here / "holdfast.toml").write_text(WORKLOAD + WORKLOAD.replace("shop", "cart"))
        assert "shop, cart" in run("zone", "runbook").err
        assert run("zone", "runbook", "cart").out.startswith("# Evacuate a zone of cart\n")


class ClosedStore(MemoryStatusStore):
    """A status store that may be read, but not written."""

    def write(self, status: ZoneStatus, expected: int) -> ZoneStatus:
        raise NotAllowed("the policy of this store does not allow it")


@pytest.mark.parametrize(
    ("closed", "told"),
    [(1, "(out in 2 of 3 stores: a majority)"), (2, "(out in 1 of 3 stores: NOT a majority)")],
)
def test_whether_most_status_stores_have_the_zone_as_out_is_told(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, closed: int, told: str
) -> None:
    stores = {f"s{number}": ClosedStore() if number < closed else MemoryStatusStore() for number in range(3)}
    kinds: Plugins[StatusStoreType] = STATUS_STORES
    monkeypatch.setitem(kinds._registered, "toy", StatusStoreType("toy:NAME", ".+", lambda name, _: stores[name]))
    (here / "holdfast.toml").write_text(
        '[status]\nstore = "toy:s2"\n[[evacuation.action]]\nname = "status"\n'
        'options = { stores = ["toy:s0", "toy:s1", "toy:s2"] }\n'
    )
    ran = evacuate(run)
    assert ran.code == 1
    assert told in ran.out
    names = ", ".join(f"status toy:s{number}" for number in range(closed))
    assert f"  failed: {names}: the policy of this store does not allow it\n" in ran.out
    assert [each.is_out(time.time()) for each in stores["s2"].read()] == [True]
    restored = run("zone", "restore", "use1-az1")
    assert (restored.code, "majority" in restored.out) == (0, False), "what failed to change needs no restore"


def test_a_journal_in_dynamodb_is_shared_by_operators_on_different_machines(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch, moto_url: str
) -> None:
    table = f"evacuations-{uuid4()}"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    aws = f'[aws]\nregion = "us-east-1"\nendpoint_url = "{moto_url}"\n'
    (here / "holdfast.toml").write_text(f'{aws}[evacuation]\njournal = "dynamodb:{table}"\n')
    for folder in ("laptop", "desktop"):
        (here / folder).mkdir()
        with SqliteDatabase(here / folder / "status.sqlite") as database:
            SqlStatusStore(database)
    missing = run("zone", "runs", "--data-directory", "laptop", "--json")
    assert (missing.code, table in missing.error["detail"]) == (2, True)
    with AwsSession(AwsOptions(region="us-east-1", endpoint_url=moto_url)) as session:
        journal = DynamoJournal(session, table, SystemClock())
        journal.create_table()
        assert evacuate(run, ONE, "--data-directory", "laptop").code == 0
        (entry,) = journal.read_entries(ONE)
    assert (entry.resource, entry.state) == ("status:database", "applied")
    refused = evacuate(run, TWO, "--data-directory", "desktop")
    assert (refused.code, "run hf-use1-az1-" in refused.err) == (1, True)
    ran = run("zone", "restore", "use1-az1", "--data-directory", "laptop")
    assert (ran.code, f"(journal: dynamodb:{table})" in ran.out) == (0, True)
    (restored,) = run("zone", "runs", "--data-directory", "desktop", "--json").result
    assert restored["state"] == "restored"
