"""Holdfast keeps a multi-zone, multi-tenant service standing when one part of it fails.

This module re-exports the words that every part shares, and nothing that is slow to import: each part
is a package of its own (`holdfast.engines`, `holdfast.testing`, ...). Start reading at `_types.py`.
"""

from holdfast._clock import Clock, SystemClock
from holdfast._errors import (
    CapacityExhausted,
    Conflict,
    CredentialRefused,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseLocked,
    EngineError,
    EngineMismatch,
    EngineUnavailable,
    HoldfastError,
    InvalidValue,
    MissingExtra,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    SettingsError,
)
from holdfast._types import (
    Carrier,
    Detector,
    Operation,
    Outcome,
    Side,
    Sink,
    StatusStore,
    Tenant,
    Verdict,
    VerdictKind,
    Zone,
    ZoneStatus,
    ZoneView,
)

__version__ = "0.1.0"

__all__ = [
    "CapacityExhausted",
    "Carrier",
    "Clock",
    "Conflict",
    "CredentialRefused",
    "DatabaseCorrupt",
    "DatabaseFull",
    "DatabaseLocked",
    "Detector",
    "EngineError",
    "EngineMismatch",
    "EngineUnavailable",
    "HoldfastError",
    "InvalidValue",
    "MissingExtra",
    "NotAllowed",
    "NotFound",
    "Operation",
    "Outcome",
    "OutcomeUnknown",
    "SettingsError",
    "Side",
    "Sink",
    "StatusStore",
    "SystemClock",
    "Tenant",
    "Verdict",
    "VerdictKind",
    "Zone",
    "ZoneStatus",
    "ZoneView",
    "__version__",
]
