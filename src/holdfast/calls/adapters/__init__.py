"""Clients of other libraries, taught to call as a Dependency says: httpx, requests, botocore.

May import the rest of `calls`. Each folder needs an extra of its own and is imported by its own name. What they share,
and decide before a request is sent, is in `rules.py`.
"""
