"""Faults that only the tests of this repository inject: below SQLite, and on the way to a server."""
