"""Journals of evacuations: one module each, which implements `holdfast.evacuate.journal.Journal`.

`database` is for SQLite, on the operator's machine, and for PostgreSQL, which several operators share.
"""
