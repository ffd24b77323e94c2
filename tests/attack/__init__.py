"""Attack a real server on loopback: unexpected requests, slow and idle connections, and floods of headers.

`scripts/attack` runs all of it, in at most five minutes. `attacks.py` has one function for each attack; each returns
figures and violations. `probe.py` asks the server for its health meanwhile.
"""
