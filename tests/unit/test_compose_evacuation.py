"""From settings to what evacuates zones."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import NotFound, SystemClock, Verdict, VerdictKind, Zone
from holdfast.compose import Databases
from holdfast.compose_evacuation import open_evacuator, read_runs
from holdfast.config import Settings, WorkloadSettings
from holdfast.config.evacuation import EvacuationAccountSettings, EvacuationActionSettings, EvacuationSettings
from holdfast.config.settings import AwsSettings, StatusSettings
from holdfast.evacuate import Evacuator, GuardName
from holdfast.evacuate.accounts import Account
from holdfast.evacuate.action import ACTIONS, Action, ActionResources, ActionType
from holdfast.evacuate.actions.status import MarkOut
from holdfast.simulate.aws.control_plane import serve
from holdfast.simulate.aws.region import ACCOUNT, SimulatedRegion
from holdfast.status import SqlStatusStore
from holdfast.status.stores import STATUS_STORES, StatusStoreType
from holdfast.status.stores.memory import MemoryStatusStore
from holdfast.status.writer import StatusWriter
from holdfast.watch import WatchStore
from tests.unit.evacuate.fleet import ControlPlane, RemoveZone

ONE, TWO = Zone("use1-az1"), Zone("use1-az2")
FIRST, SECOND = "210987654321", "345678901234"
SHOP = WorkloadSettings(name="shop", region="us-east-1", zones=(ONE, TWO))
BLOG = WorkloadSettings(name="blog", region="nowhere-1", zones=("nowhere-a",))


class NoOptions(Struct):
    """The probe has none."""


class Probe:
    """An action that keeps the resources that it is opened with."""

    resources: ActionResources

    def open(self, _: NoOptions, resources: ActionResources) -> Action:
        self.resources = resources
        return RemoveZone(ControlPlane(0))

    def list_accounts(self, zone: Zone) -> Sequence[Account]:
        return self.resources.accounts().list_for(zone)


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    """A probe that settings find by the name `probe`."""
    found = Probe()
    monkeypatch.setitem(ACTIONS._registered, "probe", ActionType(open=found.open, options_type=NoOptions))
    return found


def build(folder: Path, *actions: str, **more: Any) -> Settings:
    chosen = tuple(EvacuationActionSettings(name=name) for name in actions or ("probe",))
    evacuation = EvacuationSettings(action=chosen, **more.pop("evacuation", {}))
    return Settings(data_directory=folder / "data", evacuation=evacuation, **more)


@contextmanager
def opened(settings: Settings, **more: Any) -> Iterator[Evacuator]:
    with Databases(settings) as databases, open_evacuator(settings, databases, **more) as evacuator:
        yield evacuator


def test_the_region_of_a_zone_is_that_of_its_workload_or_of_its_az_id_or_of_the_settings(
    tmp_path: Path, probe: Probe
) -> None:
    for zone, region, expected in (
        ("nowhere-a", "eu-west-1", "nowhere-1"),
        ("use1-az1", "eu-west-1", "us-east-1"),
        ("usgw1-az2", None, "us-gov-west-1"),
        ("cloud-7", "eu-west-1", "eu-west-1"),
    ):
        with opened(build(tmp_path, workload=(BLOG,), aws=AwsSettings(region=region))):
            assert [each.region for each in probe.list_accounts(Zone(zone))] == [expected]
    with opened(build(tmp_path)), pytest.raises(NotFound, match=r"the region of cloud-7 is unknown: set aws\.region"):
        probe.list_accounts(Zone("cloud-7"))


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The address of three accounts, and the roles that were assumed there."""
    regions = [SimulatedRegion(SystemClock(), account=each) for each in (ACCOUNT, FIRST, SECOND)]
    assumed: list[Mapping[str, Any]] = []
    calls: Any = regions[0].handlers["sts"]
    assume = calls["AssumeRole"]

    def record(values: Mapping[str, Any]) -> Any:
        assumed.append(values)
        return assume(values)

    calls["AssumeRole"] = record
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", regions[0].access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with serve(regions) as address:
        yield address, assumed


def test_accounts_are_those_of_profiles_and_roles_or_that_of_the_credentials(
    tmp_path: Path, probe: Probe, cloud: tuple[str, list[Mapping[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, assumed = cloud
    (tmp_path / "config").write_text(f"[profile first]\naws_access_key_id = AKIA{FIRST}\naws_secret_access_key = any\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    aws, role = AwsSettings(endpoint_url=address), f"arn:aws:iam::{SECOND}:role/holdfast"
    with opened(build(tmp_path, aws=aws)):
        (account,) = probe.list_accounts(ONE)
        assert (account.name, account.get_id()) == ("the account of [aws]", ACCOUNT)
    several = (
        EvacuationAccountSettings(profile="first"),
        EvacuationAccountSettings(role_arn=role, external_id="secret"),
    )
    with opened(build(tmp_path, aws=aws, evacuation={"account": several})):
        found = probe.list_accounts(ONE)
        assert [(each.name, each.get_id()) for each in found] == [("profile first", FIRST), (role, SECOND)]
        arn = f"arn:aws:eks:us-east-1:{SECOND}:cluster/shop"
        assert probe.resources.accounts().find(arn) is found[1]
    assert [(each["RoleArn"], each["ExternalId"]) for each in assumed] == [(role, "secret")]


def test_a_zone_is_not_marked_as_out_in_a_store_that_no_server_reads(tmp_path: Path, probe: Probe) -> None:
    with pytest.raises(NotFound, match=r"there is no store at .*status\.sqlite: .*--server URL"):
        opened(build(tmp_path, "status", "probe")).__enter__()
    with opened(build(tmp_path, "probe")) as evacuator:  # it marks no zone as out
        assert evacuator.read_states(None) == {}
    assert not (tmp_path / "data" / "status.sqlite").exists()
    settings = build(tmp_path, "status", "probe")
    with Databases(settings) as databases:
        SqlStatusStore(databases.database("status"))
    with opened(settings) as evacuator:
        assert evacuator.read_states(None) == {}


def test_statuses_go_to_the_store_of_the_settings_or_to_those_of_the_action(
    tmp_path: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {name: MemoryStatusStore() for name in ("own", "other")}
    kind = StatusStoreType("toy:NAME", ".+", lambda name, _: stores[name])
    monkeypatch.setitem(STATUS_STORES._registered, "toy", kind)
    settings = build(tmp_path, status=StatusSettings(store="toy:own"))
    with opened(settings) as evacuator:
        (name, writer), *_ = probe.resources.status_writers(()).items()
        assert (name, writer.store) == ("toy:own", stores["own"])
        several = probe.resources.status_writers(["toy:own", "toy:other"])
        assert [each.store for each in several.values()] == [stores["own"], stores["other"]]
        assert several["toy:own"] is writer
        writer.take_out(ONE, by="me", reason="it fails")
        assert list(evacuator.read_states(None)) == [ONE]
    published = StatusWriter(MemoryStatusStore(), SystemClock())
    with opened(settings, writer=published):
        assert probe.resources.status_writers(["toy:own"]) == {"toy:own": published}, "a server publishes its changes"


def test_guards_know_the_zones_and_the_verdicts_of_the_workloads(tmp_path: Path, probe: Probe) -> None:
    settings = build(tmp_path, workload=(SHOP, BLOG))

    def find(evacuator: Evacuator, workload: str | None, name: GuardName) -> str:
        proposal = evacuator.prepare(ONE, workload)
        return next(each.finding for each in proposal.guards if each.name is name)

    with opened(settings) as evacuator:
        assert evacuator.prepare(ONE, "shop").verdict is None, "no server was here"
        assert TWO in find(evacuator, "shop", GuardName.LAST_ZONE)
        assert TWO in find(evacuator, None, GuardName.LAST_ZONE), "blog is not in this zone"
        assert not (tmp_path / "data" / "watch.sqlite").exists()
    now = SystemClock().wall()
    with Databases(settings) as databases:
        store = WatchStore(databases.database("watch"))
        for workload, kind in (("shop", VerdictKind.ISOLATED), ("blog", VerdictKind.REGIONAL)):
            verdict = Verdict(id=workload, workload=workload, kind=kind, zone=ONE, since=now, at=now)
            store.record(workload, "calibrated", {}, now, opened=None, closed=[], current=verdict)
    with opened(settings) as evacuator:
        found = [evacuator.prepare(ONE, each).verdict for each in ("shop", "blog", None)]
    assert [each.id for each in found if each is not None] == ["shop", "blog", "blog"]


def test_runs_are_read_without_creating_a_journal(tmp_path: Path, probe: Probe) -> None:
    settings = build(tmp_path)
    with Databases(settings) as databases:
        assert read_runs(settings, databases).runs == ()
        assert not (tmp_path / "data").exists()
        with open_evacuator(settings, databases) as evacuator:
            proposal = evacuator.prepare(ONE, reason="it fails", overrides={"verdict": "seen"})
            evacuator.evacuate(*evacuator.begin(proposal, by="me"))
        assert [each.zone for each in read_runs(settings, databases).open] == [ONE]


def test_the_default_action_marks_the_zone_as_out() -> None:
    (action,) = Settings().evacuation.action
    found = ACTIONS.get(action.name).open(action.parse_options(), _OnlyWriters())
    assert isinstance(found, MarkOut)


class _OnlyWriters:
    clock = SystemClock()

    def accounts(self) -> Any:
        raise AssertionError("marking a zone as out needs no account")

    def status_writers(self, addresses: Sequence[str]) -> Mapping[str, StatusWriter]:
        assert not addresses
        return {}
