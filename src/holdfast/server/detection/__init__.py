"""Telemetry and detection in a child process, so that the API stays quick beside them.

The parent passes on what senders send, reads zone states, and evacuates; the child decodes, keeps measurements and
reaches verdicts. Start reading at `messages.py`; `process.py` is the parent's side, `child.py` the child's.
"""
