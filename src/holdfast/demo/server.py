"""The server of the demonstration: the same as `holdfast up`, but it ends with the demonstration."""

import argparse
import os
from pathlib import Path

from holdfast.config import load
from holdfast.demo.process import announce, exit_with_parent
from holdfast.server.logs import configure_logging
from holdfast.server.run import serve


def main() -> None:
    """Run the server until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--access-key", required=True)
    arguments = parser.parse_args()
    exit_with_parent()
    _use_simulated_aws(arguments.access_key)
    settings = load(arguments.settings, environment={}).settings
    configure_logging(settings.log)
    serve(settings, lambda address, _: announce(address=address))


def _use_simulated_aws(access_key: str) -> None:
    """Give boto3 the credentials of the simulated account, and hide those of the user."""
    os.environ.pop("AWS_PROFILE", None)
    os.environ.pop("AWS_SESSION_TOKEN", None)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": "simulated",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


if __name__ == "__main__":
    main()
