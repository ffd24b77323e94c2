"""Numbered changes of tables: find and apply the pending ones. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._errors import EngineMismatch, InvalidValue

if TYPE_CHECKING:
    from holdfast.engines.database import Transaction


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step. A released step is never edited; a later step corrects it."""

    number: int
    name: str
    statements: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """A digest of the statements, without their indentation. It changes when the step is edited."""
        lines = [line.strip() for statement in self.statements for line in statement.splitlines()]
        text = "\n".join(line for line in lines if line)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_pending(subsystem: str, known: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """Return the steps that are not applied yet. `applied` has the fingerprints of the applied steps by number.

    Raise EngineMismatch if a newer Holdfast created the tables, or if an applied step was edited later.
    """
    if [step.number for step in known] != list(range(1, len(known) + 1)):
        raise InvalidValue(f"migrations of {subsystem} must be numbered 1, 2, 3, ... without gaps")
    newer = sorted(number for number in applied if number > len(known))
    if newer:
        raise EngineMismatch(
            f"the tables of {subsystem} are at version {newer[-1]}, but this Holdfast knows only versions up to "
            f"{len(known)}: a newer release created them; upgrade holdfast, or restore a backup made before the upgrade"
        )
    if sorted(applied) != list(range(1, len(applied) + 1)):
        raise EngineMismatch(
            f"the tables of {subsystem} say that only the steps {sorted(applied)} were applied, with gaps between: "
            "the table holdfast_migrations was changed by hand; restore a backup"
        )
    for step in known:
        if step.number in applied and applied[step.number] != step.fingerprint:
            raise EngineMismatch(
                f"migration {step.number} ({step.name}) of {subsystem} differs from the one that created these tables: "
                "a released step must never be edited; use the release that created them"
            )
    return [step for step in known if step.number not in applied]


def apply_migrations(
    transaction: "Transaction", subsystem: str, known: Sequence[Migration], now: float
) -> list[Migration]:
    """Apply the pending steps in `transaction`. The caller ensures that no other process does so concurrently."""
    transaction.execute(
        "create table if not exists holdfast_migrations (subsystem text not null, number bigint not null, "
        "name text not null, fingerprint text not null, applied_at double precision not null, "
        "primary key (subsystem, number))"
    )
    rows = transaction.execute("select number, fingerprint from holdfast_migrations where subsystem = $1", (subsystem,))
    steps = find_pending(subsystem, known, dict(rows))
    for step in steps:
        for statement in step.statements:
            transaction.execute(statement)
        transaction.execute(
            "insert into holdfast_migrations (subsystem, number, name, fingerprint, applied_at) "
            "values ($1, $2, $3, $4, $5)",
            (subsystem, step.number, step.name, step.fingerprint, now),
        )
    return steps
