"""Packages that only some uses of gradwise need: each belongs to an extra, and is imported when it is used.

check_installed("wandb", "wandb")     one line that says what to install, if it is missing
wandb = import_optional("wandb", "wandb")
"""

import importlib
import importlib.util
from typing import Any

from .errors import RequestError


def check_installed(package: str, extra: str) -> None:
    """Raises if the package is not installed; imports nothing."""
    if importlib.util.find_spec(package) is None:
        raise RequestError(f"{package} is not installed. Run: pip install gradwise[{extra}]")


def import_optional(module: str, extra: str) -> Any:
    """The module, of a package that the extra installs."""
    check_installed(module.partition(".")[0], extra)
    return importlib.import_module(module)
