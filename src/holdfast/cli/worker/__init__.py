"""`holdfast worker`: one process, or several under a supervisor, that handle the messages of queues.

Start reading at `command.py`. `work.py` is what each process does; it needs nothing of the command line, so that a
process of many is small.
"""
