"""Adapters that apply a Dependency's timeouts, retries and budget to clients of httpx, requests and botocore.

May import the rest of `calls`. Each folder needs its own extra and is imported by its own name. `rules.py` has the
decisions before a request is sent, which the adapters share.
"""
