"""`python -m gradwise` is `gradwise`."""

import sys

from .cli.main import run

if __name__ == "__main__":
    sys.exit(run())
