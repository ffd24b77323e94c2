"""What a queue decides: whom to admit, where to put it, whose turn it is, what is too much, what to bury. Pure.

May import the base, `holdfast.calls` for its backoff and `holdfast.shards` for hands. Every backend decides by these.
Start reading at `admission.py` for a message's way in, and at `turns.py` for its way out.
"""
