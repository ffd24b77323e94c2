"""Simulate a service in several zones, with labelled failures, for people who tune detection and for tests.

May import `telemetry`, and needs NumPy. Start reading at `scenarios.py` for the scenarios, at `traffic.py` for the
measurements, at `windows.py` for the way to a detector, and at `files.py` for the way into files.
"""
