"""`holdfast check`: are the settings right, and which are in effect?"""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from holdfast.cli.output import Json, SettingsFile, print_json, print_table
from holdfast.config import load
from holdfast.config.places import dotted


def check(
    file: Annotated[Path | None, Parameter(help="The settings file; without it, the one that `up` would use.")] = None,
    /,
    *,
    settings: SettingsFile = None,
    json: Json = False,
) -> None:
    """Validate settings and show the ones in effect, secrets masked, with where each comes from.

    Example: holdfast check holdfast.toml
    """
    loaded = load(file or settings)
    effective = [(dotted(place), value, origin) for place, value, origin in loaded.effective()]
    if json:
        print_json(
            {
                "file": None if loaded.file is None else str(loaded.file),
                "settings": {name: {"value": value, "from": origin} for name, value, origin in effective},
            }
        )
    else:
        print_table(
            ("setting", "value", "from"), [(name, _as_toml(value), origin) for name, value, origin in effective]
        )


def _as_toml(value: object) -> str:
    return msgspec.json.encode(value).decode()
