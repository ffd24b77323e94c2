"""Clients of other libraries, taught to call as a Dependency says: httpx, requests, botocore.

May import the rest of `calls`. Each module needs an extra of its own and is imported by its own name. Start reading at
`httpx.py`, `requests.py` or `botocore.py`; what is asked before a request is sent is in `rules.py`.
"""
