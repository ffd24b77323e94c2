"""The interface between sources and the loop that collects their measurements."""

from typing import Any, ClassVar

import pytest
from msgspec import Struct

from holdfast import InvalidValue, SettingsError, Zone
from holdfast.telemetry.source import (
    SOURCES,
    SourceBatch,
    SourceContext,
    SourceWorkload,
    open_source,
    parse_source_options,
)


def test_refusals_are_counted_by_reason_and_the_first_is_told() -> None:
    batch = SourceBatch()
    for reason, problem in (("invalid", "first"), ("not_json", "second"), ("invalid", "third")):
        batch.refuse(reason, problem)
    assert (batch.refused, batch.problem) == ({"invalid": 2, "not_json": 1}, "first")


def test_by_default_the_faults_are_the_5xx() -> None:
    assert SourceWorkload("shop", frozenset({Zone("use1-az1")})).count_faults(5, 3, 429) == 3


def test_a_registered_source_is_opened_with_its_options_and_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class Options(Struct, forbid_unknown_fields=True):
        address: str

    class Source:
        options_type: ClassVar[type[Options]] = Options
        lateness = 60.0

        def __init__(self, options: Options, context: SourceContext, state: str) -> None:
            self.state = f"{options.address} {context.bin_seconds} {state}"

        def poll(self, now: float) -> SourceBatch:
            return SourceBatch(accepted=int(now))

        def close(self) -> None:
            pass

    class Decoder:
        def decode(self, body: bytes, now: float, *, allowed: frozenset[str] | None = None) -> SourceBatch:
            return SourceBatch()

    monkeypatch.setitem(SOURCES._registered, "made", Source)
    context: Any = SourceContext(workloads=(), bin_seconds=10, emf=Decoder())
    assert open_source("made", {"address": "a"}, context, "s").state == "a 10 s"
    with pytest.raises(InvalidValue, match="options"):
        parse_source_options("made", {"address": 5})
    with pytest.raises(InvalidValue, match=r"options\.port: unknown option of source made, expected address"):
        parse_source_options("made", {"port": 5})
    with pytest.raises(SettingsError, match="made"):
        parse_source_options("unmade", {})
