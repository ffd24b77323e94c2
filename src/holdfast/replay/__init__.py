"""Run detectors and alarms over recorded telemetry, faster than it was recorded, and score them against labels.

May import watch, simulate and below. Start reading at `run.py`: files become rows (`files.py`, `csv_bins.py`), rows
become bins (`timeline.py`), and detectors and alarms judge the bins (`judges.py`). Needs NumPy.
"""
