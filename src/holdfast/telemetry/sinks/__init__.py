"""Sinks for telemetry. Each implements `holdfast.Sink`: it never raises and never blocks.

`lines.py` and `metrics.py` take outcomes. The others take lines, which `lines.py` makes; `buffered.py` is their base.
"""
