"""`holdfast worker`: handle the messages of queues in one process, or in several under a supervisor.

Start reading at `command.py`. `work.py` is the work of each process; it does not import the command line, so that each
of many processes is small.
"""
