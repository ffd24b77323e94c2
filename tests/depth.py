"""How far property tests look: a few examples, the same in every run, in `make test`; many fresh ones in `make proof`.

A pytest plugin with two profiles of Hypothesis. `--hypothesis-profile proof` chooses the second.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = 25
"""Most examples of a property in `make test`. Whatever is rarer than one in ten is for `make proof` to find."""
TIMES = 4
"""How many times as many examples as it asks for itself a property has in `make proof`."""

# How long an example takes says more about the machine than about the code. No run may fail by chance.
settings.register_profile("test", deadline=None, derandomize=True, database=None)
# Examples that a busy machine is slow to make are no defect.
settings.register_profile(
    "proof", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the number of examples of every property, also of those that ask for a number of their own."""
    is_proof = config.getoption("--hypothesis-profile") == "proof"
    owners = {(id(owner), name): (owner, name) for owner, name in filter(None, map(_settings_of, items))}
    for owner, name in owners.values():
        asked: settings = getattr(owner, name)
        setattr(owner, name, settings(asked, max_examples=examples(asked.max_examples, is_proof=is_proof)))


def examples(asked: int, *, is_proof: bool) -> int:
    """Return how many examples a property gets that asks for `asked`."""
    return asked * TIMES if is_proof else min(asked, EXAMPLES)


def nested(asked: int) -> settings:
    """Return the settings of a property that a test defines inside of itself, which the hook above does not see."""
    is_proof = settings.get_current_profile_name() == "proof"
    return settings(max_examples=examples(asked, is_proof=is_proof), deadline=None)


def _settings_of(item: pytest.Item) -> tuple[Any, str] | None:
    """Return the object that carries the settings of a property, and the attribute in which they are."""
    if not isinstance(item, pytest.Function):
        return None
    function = getattr(item.obj, "__func__", item.obj)
    if hasattr(function, "_hypothesis_state_machine_class"):
        return item.cls, "settings"
    name = "_hypothesis_internal_use_settings"
    return (function, name) if hasattr(function, name) else None
