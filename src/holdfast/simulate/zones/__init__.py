"""Simulate a service in several zones, with labelled failures, for people who tune detection and for tests.

May import `telemetry`, and needs NumPy. Start reading at `scenarios.py` for the scenarios, at `traffic.py` for the
measurements, at `windows.py` for the way to a detector, and at `files.py` for the way into files.
"""

from holdfast._errors import MissingExtra

try:
    import numpy as _numpy  # noqa: F401 - only to see whether it is installed
except ImportError as error:
    raise MissingExtra("the simulation of zones (holdfast simulate zones)", "server") from error

from holdfast.simulate.zones.scenario import Label, Scenario, Size, StateSpan, TelemetryFault
from holdfast.simulate.zones.scenarios import SCENARIOS, create_scenario
from holdfast.simulate.zones.traffic import Effect, Fleet, SimulatedBin, TrafficSimulation
from holdfast.simulate.zones.windows import iterate_windows, to_window

__all__ = [
    "SCENARIOS",
    "Effect",
    "Fleet",
    "Label",
    "Scenario",
    "SimulatedBin",
    "Size",
    "StateSpan",
    "TelemetryFault",
    "TrafficSimulation",
    "create_scenario",
    "iterate_windows",
    "to_window",
]
