"""Simulated AWS services, built on moto: an RDS with the lifecycle of Aurora, and Step Functions. Changes can fail.

The only folder that imports moto, and only in `rds.py` and `emulator.py`. Everything happens in virtual time. Start
reading at `rds.py`; `emulator.py` runs a state machine and its functions in this process.
"""
