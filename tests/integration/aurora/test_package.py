"""The zip works where there is nothing but Python and boto3, as in Lambda."""

import io
import json
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from holdfast.aurora.machine import Function
from holdfast.aurora.package import build_package

PROVIDED = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
"""What Lambda's runtime provides: boto3 and what it imports."""
PROGRAM = """
import json, sys, time
sys.path[:0] = sys.argv[1:3]
import boto3.session, botocore.config, botocore.credentials, botocore.session
begun = time.perf_counter()
import holdfast.aurora.lambdas as lambdas
milliseconds = (time.perf_counter() - begun) * 1000
names = sys.argv[3].split(",")
found = [name for name in names if callable(getattr(lambdas, name))]
files = sorted({module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "holdfast"})
print(json.dumps({"found": found, "files": files, "milliseconds": milliseconds}))
"""


@pytest.fixture
def provided(tmp_path: Path) -> Path:
    """A folder with boto3 and nothing else."""
    folder = tmp_path / "provided"
    folder.mkdir()
    for name in PROVIDED:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        source = source.parent if source.name == "__init__.py" else source
        (folder / source.name).symlink_to(source)
    return folder


def import_functions(code: Path, provided: Path) -> subprocess.CompletedProcess[str]:
    names = ",".join(function.replace("-", "_") for function in Function)
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(code), str(provided), names]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=code)


def test_every_function_can_be_imported_from_the_zip_with_boto3_alone(tmp_path: Path, provided: Path) -> None:
    """Needs a second: two processes import boto3."""
    code = tmp_path / "code"
    with zipfile.ZipFile(io.BytesIO(build_package().content)) as archive:
        archive.extractall(code)
    ran = import_functions(code, provided)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    assert len(result["found"]) == len(Function)
    assert all(Path(file).is_relative_to(code) for file in result["files"])
    print(f"importing the functions takes {result['milliseconds']:.0f} ms on top of boto3")
    (code / "holdfast" / "aurora" / "rules.py").unlink()
    assert "No module named 'holdfast.aurora.rules'" in import_functions(code, provided).stderr
