"""The decisions of a queue: admission, placement, leasing, rate limits, and retry or burial. Pure.

May import the base and `holdfast.shards` for hands. Every backend uses these rules. Start reading at `admission.py` for
sending, and at `leasing.py` for leasing.
"""
