"""A Python process that imports what this one has imported, and nothing else that lies in the working directory.

    environment = {**os.environ, "PYTHONPATH": safe_import_path()}
    subprocess.Popen(python_command("gradwise.searching.running.worker", address), env=environment)

`python -m` puts the working directory first: a file `html.py` that lies there would run in place of the standard
library's. So this folder is left out, and a module that the parent itself found there, such as the user's own
network, is looked up by its name. The child runs this file as a script, before it can import anything of gradwise.
"""

import importlib.machinery
import json
import os
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def _is_unsafe(folder: str) -> bool:
    """Whether it is the working directory, and not where Python keeps what is installed."""
    place = os.path.realpath(folder)
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    return place == os.path.realpath(os.getcwd()) and place not in installed


def safe_import_path() -> str:
    """Where this process finds its modules, without the working directory."""
    return os.pathsep.join(os.path.abspath(path) for path in sys.path if not _is_unsafe(path))


def _folders(module: ModuleType) -> list[str]:
    """Where the module or package was found; empty if it came from no folder."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return []
    files = spec.submodule_search_locations or ([spec.origin] if spec.has_location and spec.origin else [])
    return [os.path.dirname(os.path.abspath(file)) for file in files]


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in another process, told which modules this one found in the working directory."""
    known = {name: _folders(found) for name, found in list(sys.modules.items()) if "." not in name}
    here = {name: folders for name, folders in known.items() if any(map(_is_unsafe, folders))}
    return [sys.executable, "-P", os.path.abspath(__file__), json.dumps(here), module, *arguments]


class _ParentModules:
    """Finds the parent's modules by name; the other names are for the finders that follow."""

    def __init__(self, folders: dict[str, list[str]]):
        self.folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or name not in self.folders:
            return None
        return importlib.machinery.PathFinder.find_spec(name, self.folders[name])


def run_module() -> None:
    """Runs the module on the command line with the arguments that follow it."""
    folders, module = json.loads(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]
    sys.meta_path.insert(0, _ParentModules(folders))
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    run_module()
