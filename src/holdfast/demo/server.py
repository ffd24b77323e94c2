"""The server of the demonstration: the same as `holdfast up`, but it ends with the demonstration."""

import argparse
from pathlib import Path

from holdfast.config import load
from holdfast.demo.process import announce, exit_with_parent
from holdfast.server.logs import configure_logging
from holdfast.server.run import serve


def main() -> None:
    """Run the server until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", type=Path, required=True)
    arguments = parser.parse_args()
    exit_with_parent()
    settings = load(arguments.settings, environment={}).settings
    configure_logging(settings.log)
    serve(settings, lambda address, _: announce(address=address))


if __name__ == "__main__":
    main()
