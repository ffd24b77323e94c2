"""Telemetry sources: decoders of what senders push, and sources that the server polls.

Start reading at `emf.py`. A polled source is a module here that registers with `holdfast.telemetry.source.SOURCES`.
"""
