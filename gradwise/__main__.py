"""`python -m gradwise` is `gradwise`."""

import sys

from .cli.main import run_program

if __name__ == "__main__":
    sys.exit(run_program())
