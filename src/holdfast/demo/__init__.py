"""The demonstration: a shop in three zones, a client, the server, and a gray failure of one zone, on one machine.

Everything is real: processes on loopback, requests, telemetry, the server's detector and status. May import all
parts; `holdfast demo` runs it. Start reading at `run.py`.
"""
