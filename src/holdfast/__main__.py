"""Run the commands as `python -m holdfast`, if the `holdfast` command is not on the path."""

import sys

from holdfast.cli import main

sys.exit(main())
