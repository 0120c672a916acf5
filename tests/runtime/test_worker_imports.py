"""What a worker process may import: what its parent did, and no file that merely lies in the working directory."""

import os
import subprocess
import sys
from pathlib import Path

import gradwise
from gradwise.runtime.worker_imports import python_command, safe_import_path

_PLANTED = "from pathlib import Path\nPath('planted-{name}').touch()\n"
_PARENT = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
import own_part, own_package, spread.part
from gradwise.runtime.worker_imports import python_command, safe_import_path
environment = dict(os.environ, PYTHONPATH=safe_import_path())
sys.exit(subprocess.run(python_command("the_child", "one", "two words"), env=environment).returncode)
"""
_CHILD = """
import html, sys
import own_part, own_package.inner, spread.part, gradwise
assert sys.argv[1:] == ["one", "two words"], sys.argv
assert own_part.where == own_package.inner.where == spread.part.where == "the user's folder"
assert gradwise.__file__ == {ours!r}
try:
    import never_imported
except ModuleNotFoundError:
    print("imported", html.escape("<"))
"""


def _write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_file_in_the_working_directory_is_not_imported_unless_the_parent_did(tmp_path: Path) -> None:
    """The user's parts lie there too: a module, a package whose part the parent had no use for, and a bare folder."""
    own = 'where = "the user\'s folder"\n'
    names = ("html", "json", "runpy", "sitecustomize", "never_imported")
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    _write(here, own_part=own, own_package__inner=own, spread__part=own)
    (here / "own_package" / "__init__.py").touch()
    _write(elsewhere, the_child=_CHILD.format(ours=gradwise.__file__))
    paths = os.pathsep.join([str(elsewhere), *filter(None, sys.path)])
    command = [sys.executable, "-P", str(tmp_path / "parent.py"), str(here)]
    planting = f"import os\nfor name in {names}:\n    open(name + '.py', 'w').write({_PLANTED!r}.format(name=name))\n"
    (tmp_path / "parent.py").write_text(_PARENT.replace("environment =", f"{planting}environment ="))
    done = subprocess.run(
        command, cwd=here, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("imported &lt;\n", 0), done.stderr
    assert not list(here.glob("planted-*"))


def test_the_path_without_the_working_directory_keeps_what_is_installed(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/usr", os.path.dirname(os.__file__)])
    monkeypatch.chdir(tmp_path)
    assert safe_import_path() == os.pathsep.join(["/usr", os.path.dirname(os.__file__)])
    monkeypatch.chdir(os.path.dirname(os.__file__))
    assert os.path.dirname(os.__file__) in safe_import_path().split(os.pathsep)
    assert python_command("a.module", "word")[-2:] == ["a.module", "word"]
