"""Never lose, never starve: producers and workers that are killed again and again, and an account of every message.

`scripts/soak` runs it at full size, `tests/integration/queue/test_soak.py` a short one. `items.py` says what is sent,
`producer.py` and `consumer.py` are the processes that are killed, `ledger.py` is what they write down, `verdict.py`
what must be true of that in the end. Start reading at `run.py`.
"""
