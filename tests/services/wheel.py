"""Where a package is installed that is wanted for the programs in it, not for its Python."""

import importlib.util
from pathlib import Path

from tests.services.start import ServiceFailed


def folder(package: str) -> Path:
    """The folder of `package`, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ServiceFailed(f"the package {package} is not installed: run `make install`")
    return Path(found.origin).parent
