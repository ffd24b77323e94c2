"""Where zone statuses are kept; each store fulfils `holdfast.StatusStore`.

One module for each: `sql`, `memory`, `dynamodb` and `s3`. They are imported by their full names, because the last two
need boto3. What they have in common is in `rules.py`.
"""
