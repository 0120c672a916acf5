"""Places, locks and one-line errors, apart from what a whole store shows."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gradwise.runtime.errors import RequestError, WorkError
from gradwise.searching.storage import backend


def test_an_address_is_shown_without_its_password() -> None:
    assert backend.without_password("postgresql://me:secret@host/name") == "postgresql://me:***@host/name"
    assert (
        backend.without_password("postgresql+psycopg2://me:a:b@host:5432/x")
        == "postgresql+psycopg2://me:***@host:5432/x"
    )
    assert backend.without_password("sqlite:////kept/a.db") == "sqlite:////kept/a.db"
    assert backend.without_password(Path("a/study.journal")) == "a/study.journal"


def test_a_password_with_odd_letters_is_not_shown_either() -> None:
    for address in ("postgresql://me:se/secret@host/name", "postgresql://h/n?user=me&password=secret&sslmode=off"):
        assert "secret" not in backend.without_password(address)


def test_which_file_holds_the_trials() -> None:
    assert backend.file_of("a/study.journal") == Path("a/study.journal")
    assert backend.file_of("sqlite:////kept/a.db?x=1") == Path("/kept/a.db")
    assert backend.file_of("sqlite:///a.db") == Path("a.db")
    assert backend.file_of("postgresql://host/name") is None
    assert backend.file_of("sqlite://") is None
    assert not backend.is_url("C:/study.journal")


def test_the_driver_that_is_here_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "psycopg" else None)
    assert backend.address("postgresql://host/name") == "postgresql+psycopg://host/name"
    assert backend.address("postgresql+asyncpg://host/name") == "postgresql+asyncpg://host/name"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match="pip install psycopg2-binary"):
        backend.address("postgresql://host/name")


def test_a_file_has_one_owner_across_processes(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    code = (
        "import sys; from pathlib import Path; from gradwise.searching.storage.backend import FileOwner; "
        "owner = FileOwner(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "mine\n"
    with pytest.raises(RequestError, match=f"another process .*process {child.pid} on .*is writing to"):
        backend.FileOwner(path)
    child.kill()
    child.communicate()
    owner = backend.FileOwner(path)
    owner.renew()
    owner.release()
    assert list(tmp_path.iterdir()) == []


def test_a_planted_link_does_not_become_the_mark_of_an_owner(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "study.journal.owner").symlink_to(tmp_path / "precious")
    with pytest.raises(RequestError, match=r"study.journal.owner is a symbolic link"):
        backend.FileOwner(tmp_path / "study.journal")
    assert (tmp_path / "precious").read_text() == "precious"


class _Attributes:
    """As much of a storage as an owner's mark needs."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get_study_user_attrs(self, study: int) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self.kept)))

    def set_study_user_attr(self, study: int, key: str, value: Any) -> None:
        self.kept[key] = value


def test_a_mark_of_a_process_that_is_gone_is_taken_at_once() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    storage = _Attributes()
    mark = {"host": socket.gethostname(), "process": ended.pid, "time": time.time(), "token": "theirs"}
    storage.kept["gradwise:owner"] = mark
    owner = backend.DatabaseOwner("db", storage, 0)
    with pytest.raises(RequestError, match=f"process {os.getpid()} on"):
        backend.DatabaseOwner("db", storage, 0)
    owner.release()
    assert storage.kept["gradwise:owner"] == {}


def test_of_two_who_claim_at_once_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = _Attributes()
    theirs = {"host": "elsewhere", "process": 5, "time": time.time(), "token": "theirs"}
    monkeypatch.setattr("time.sleep", lambda seconds: storage.kept.update({"gradwise:owner": theirs}))
    with pytest.raises(WorkError, match="5 on elsewhere"):
        backend.DatabaseOwner("db", storage, 0)


def test_a_mark_is_renewed_a_few_times_a_minute_only(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = _Attributes()
    owner = backend.DatabaseOwner("db", storage, 0)
    first = storage.kept["gradwise:owner"]
    owner.renew()
    assert storage.kept["gradwise:owner"] is first
    monkeypatch.setattr(backend, "RENEW_SECONDS", 0.0)
    owner.renew()
    assert storage.kept["gradwise:owner"]["time"] > first["time"]


def test_what_is_no_storages_fault_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), backend.explain_errors("study.journal", working=True):
        raise ZeroDivisionError
    with (
        pytest.raises(WorkError, match="No space left on device"),
        backend.explain_errors("study.journal", working=True),
    ):
        raise OSError(28, "No space left on device")
