"""A simulated AWS account in a process of its own, as the demo starts it."""

from pathlib import Path

import pytest

from holdfast import Zone
from holdfast.demo.process import Child
from holdfast.evacuate.action import Target
from holdfast.evacuate.actions.zonal_shift import ZonalShift
from holdfast.simulate.aws.control_plane import main
from tests.integration.evacuate.child import open_accounts


def test_a_process_serves_an_account_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    arguments = ["--zones", "use1-az1,use1-az2", "--add", "application:shop", "--add", "group:legacy:disabled"]
    with Child("holdfast.simulate.aws.control_plane", arguments, log) as child:
        facts = child.wait_until_ready()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", facts["access_key"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        with open_accounts(facts["address"]) as accounts:
            found = ZonalShift(accounts).discover(Target(zone=Zone("use1-az1"), run="hf-1"))
        assert [each.name for each in found.resources] == ["shop"]
        assert [each.resource.name for each in found.unmovable] == ["legacy"]
    assert child.has_ended()
    assert log.read_text() == ""


@pytest.mark.parametrize("text", ["shop", "queue:shop", "group:shop:six", "group::6"])
def test_a_resource_that_is_not_understood_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setattr("sys.argv", ["control_plane", "--zones", "use1-az1", "--add", text])
    with pytest.raises(SystemExit):
        main()
    assert f"--add {text}: expected KIND:NAME" in capsys.readouterr().err
