"""Simulated AWS services: Aurora and Step Functions, on moto, and control planes over HTTP. Calls can fail.

The only folder that imports moto, and only in `rds.py` and `emulator.py`. These work in virtual time. Start reading at
`rds.py`; `emulator.py` runs a state machine and its functions in this process. `control_plane.py` is a server of its
own, for accounts with balancers, Auto Scaling groups, ECS services, Lambda functions, EKS clusters and ARC.
"""
