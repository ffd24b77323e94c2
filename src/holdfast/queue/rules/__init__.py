"""What a queue decides: whom to admit, where to put it, whose turn it is, what is too much, what to bury. Pure.

May import the base and `holdfast.shards` for hands. Every backend decides by these rules. Start reading at
`admission.py` for a message's way in, and at `leasing.py` for its way out.
"""
