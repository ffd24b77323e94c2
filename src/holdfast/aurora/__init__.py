"""Change the instance class of an Aurora cluster on a schedule, on AWS Step Functions.

May import the engines. The functions run in Lambda with boto3 alone, so no module that they import may need anything
else. Start reading at `machine.py`, the diagram of a run; `rules.py` decides its steps, `handlers.py` performs them.
"""
