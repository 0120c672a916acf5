"""`python -m gradwise` is `gradwise`."""

import sys

from .cli.main import run

sys.exit(run())
