"""The whole loop on one machine: a shop in three zones, a client, the server, and a gray failure of one zone.

Everything in it is real: processes on loopback, requests, telemetry, the server's own detector and status. May import
all parts; `holdfast demo` runs it. Start reading at `run.py`.
"""
