"""Who keeps statuses in a database does not pay for AWS."""

import subprocess
import sys


def test_statuses_in_a_database_or_in_memory_do_not_import_boto3() -> None:
    code = """
import sys
import holdfast.status, holdfast.status.stores.memory, holdfast.status.stores.database
print(*{"boto3", "botocore"} & sys.modules.keys())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
