"""Real services for the tests: PostgreSQL, Valkey, two emulators of AWS and Chromium, all on loopback.

A service is started when the first test asks for it, once per run however many workers there are, and ends with
the run, even when pytest is killed. Start reading at `run.py`; tests use the fixtures in `tests/conftest.py`.
"""
