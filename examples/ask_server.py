"""Asks a server which zones are out, without Holdfast's library: `python ask_server.py`."""

import json
import urllib.request

with urllib.request.urlopen("http://127.0.0.1:8470/v1/status", timeout=5) as response:
    statuses = json.load(response)["statuses"]
for status in statuses:
    print(status["zone"], status["state"], "for", status["workload"] or "all workloads")
print(len(statuses), "statuses")
