"""Settings of evacuations: actions by name with their own options, accounts and the journal."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import SettingsError
from holdfast.config import load
from holdfast.config.evacuation import EvacuationSettings
from tests.table import every_row

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        file = tmp_path / "some.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def read(write: Write, text: str) -> EvacuationSettings:
    return load(write(text), {}).settings.evacuation


def test_by_default_people_decide_and_zones_are_marked_only(write: Write) -> None:
    found = read(write, "")
    assert (found.mode, found.detectors, found.journal, tuple(each.name for each in found.action), found.account) == (
        "advise",
        ("calibrated",),
        "database",
        ("status",),
        (),
    )


def test_actions_have_their_own_options_with_defaults(write: Write) -> None:
    found = read(
        write,
        """
        [[evacuation.action]]
        name = "status"
        options.stores = ["database", "dynamodb:zones"]
        [[evacuation.action]]
        name = "zonal-shift"
        [[evacuation.account]]
        profile = "shop"
        [[evacuation.account]]
        role_arn = "arn:aws:iam::123456789012:role/evacuate"
        """,
    )
    assert [(each.name, each.options) for each in found.action] == [
        ("status", {"stores": ("database", "dynamodb:zones")}),
        ("zonal-shift", {"hours": 12}),
    ]
    assert [each.name for each in found.account] == ["profile shop", "arn:aws:iam::123456789012:role/evacuate"]


def test_wrong_settings_are_named(write: Write) -> None:
    rows = [
        ('[evacuation]\nmode = "maybe"', "evacuation.mode"),
        ('[evacuation]\ndetectors = ["luck"]', "no detector is called 'luck'"),
        ('[evacuation]\njournal = "dynamodb"', "evacuation.journal: expected dynamodb:TABLE"),
        ('[[evacuation.action]]\nname = "magic"', "evacuation.action[0].name: no evacuation action is called 'magic'"),
        ("[[evacuation.action]]\noptions.hours = 3", "evacuation.action[0].name"),
        (
            '[[evacuation.action]]\nname = "zonal-shift"\noptions.hours = 0',
            "[0].options.hours: Expected `int` >= 1",
        ),
        (
            '[[evacuation.action]]\nname = "zonal-shift"\noptions.days = 1',
            "options.days: unknown option of action zonal-shift",
        ),
        ('[[evacuation.action]]\nname = "status"\n[[evacuation.action]]\nname = "status"', "every action once"),
        ("[evacuation]\naction = []", "at least one action"),
        ('[[evacuation.account]]\nexternal_id = "x"', "expected a profile, a role_arn or both"),
    ]

    def check(row: tuple[str, str]) -> None:
        with pytest.raises(SettingsError) as caught:
            read(write, row[0])
        assert row[1] in str(caught.value)

    every_row(rows, check)
