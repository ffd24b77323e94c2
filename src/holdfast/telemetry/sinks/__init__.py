"""Sinks for telemetry. Each implements `holdfast.Sink`: it never raises and never blocks."""
