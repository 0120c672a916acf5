"""Where a study's trials are kept, and who may write there.

    study.journal                       a file, one line for each trial (the default)
    sqlite:///studies.db                a database in a file
    postgresql://user@host/name         a database on a server

One process writes at a time. A file is locked by the operating system, which releases the lock with the process. A
database is locked by a mark that its owner renews: while the mark is fresh no other process may write; a mark that was
not renewed for a minute, or whose process has ended, is taken over.

Every error is one line: a `RequestError` while opening, a `WorkError` afterwards.
"""

import contextlib
import importlib.util
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...runtime.errors import RequestError, WorkError
from .journal import SealedJournal, describe_damage, inspect_journal, is_repairable

BUSY_SECONDS = 5.0  # how long a database that somebody else is writing to is waited for
OUTAGE_SECONDS = 60.0  # how long a server that does not answer is waited for while a study runs
FRESH_SECONDS = 60.0  # a mark older than this is abandoned
RENEW_SECONDS = 15.0
_MARK = "gradwise:owner"


def is_url(where: str | Path) -> bool:
    """Whether this names a database rather than a journal file."""
    return re.match(r"^[a-zA-Z][\w+]*://", str(where)) is not None


HIDDEN = "***"  # instead of a password


def without_password(where: str | Path) -> str:
    """The place as people may read it: without a password."""
    text = re.sub(r"(://[^:/@]*):.*@", rf"\1:{HIDDEN}@", str(where))
    return re.sub(r"(password=)[^&]*", rf"\1{HIDDEN}", text)


def address(where: str | Path) -> str:
    """The address as SQLAlchemy takes it: PostgreSQL by whichever driver is here, unless one is named."""
    text = str(where)
    scheme, _, rest = text.partition("://")
    if scheme not in {"postgres", "postgresql"}:
        return text
    for driver in ("psycopg2", "psycopg"):
        if importlib.util.find_spec(driver) is not None:
            return f"postgresql+{driver}://{rest}"
    raise RequestError(f"{without_password(text)} needs a driver that is not installed: pip install psycopg2-binary.")


def file_of(where: str | Path) -> Path | None:
    """The file that holds the trials, or None for a server."""
    text = str(where)
    if not is_url(text):
        return Path(text)
    if not text.startswith("sqlite"):
        return None
    path = text.partition(":///")[2].partition("?")[0]
    return Path(path) if path and path != ":memory:" else None


def _cause(problem: BaseException) -> str:
    """The innermost reason, as one line without addresses."""
    while problem.__cause__ is not None or getattr(problem, "orig", None) is not None:
        problem = getattr(problem, "orig", None) or problem.__cause__  # type: ignore[assignment]
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return re.sub(
        r"^(connection to server .*? failed: )?(FATAL:\s+)?", "", lines[0] if lines else type(problem).__name__
    )


_REMEDIES = (  # what the reason says, in words that hold for every driver; and what to do
    (r"password authentication failed|no password supplied", "wrong user or password", "Look at the address."),
    (r"role .* does not exist", "unknown user", "Look at the address."),
    (r"database .* does not exist", "unknown database", "Create it first, for example with createdb."),
    (r"database is locked", "another program is writing to it", "Wait for it to end, or use another store."),
    (r"file is not a database", "it is not a SQLite database", "Give another place."),
    (r"no longer compatible|table schema", "its tables are of another Optuna version", "Run: optuna storage upgrade."),
    (
        r"server closed|terminating connection|starting up|shutting down|"
        r"refused|could not translate|timeout expired|No such file|unreachable|not known",
        "the server does not answer",
        "Check host, port and socket, and that the server is running.",
    ),
    (r"unable to open database file", "it cannot be opened", "Check that the folder exists and is writable."),
)


_COMING_BACK = re.compile(
    "server closed|terminating connection|connection already closed|refused|No such file|unreachable|timeout expired|"
    "starting up|shutting down|recovery mode|broken pipe|reset by peer",
    re.IGNORECASE,
)


def may_come_back(where: str | Path, problem: BaseException) -> bool:
    """Whether a server that was stopped or cannot be reached is why something could not be written."""
    return is_url(where) and file_of(where) is None and _COMING_BACK.search(_cause(problem)) is not None


def explain(where: str | Path, problem: BaseException, *, working: bool) -> RequestError | WorkError:
    """One line for what went wrong: what was wrong with the request, or how the work failed."""
    cause = _cause(problem)
    what, remedy = cause.rstrip("."), ""
    for pattern, words, advice in _REMEDIES:
        if re.search(pattern, cause):
            what, remedy = words, f" {advice}"
            break
    if working:
        kept = "Every earlier trial is saved: free some space or reconnect, then resume."
        return WorkError(f"could not write to the study in {without_password(where)}: {what}. {kept}")
    return RequestError(
        f"could not open the study in {without_password(where)}: {what}.{remedy or ' Use another store.'}"
    )


@contextlib.contextmanager
def explain_errors(where: str | Path, *, working: bool) -> Iterator[None]:
    """Turns whatever a storage raises into one line."""
    try:
        yield
    except Exception as problem:
        theirs = type(problem).__module__.startswith(("sqlalchemy.", "optuna."))
        if not (theirs or isinstance(problem, OSError)):
            raise
        raise explain(where, problem, working=working) from problem


@contextlib.contextmanager
def quiet_storage() -> Iterator[None]:
    """Optuna's own messages are not for the people who read ours."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _open_journal(path: Path) -> Any:
    from optuna.storages import JournalStorage

    with open(path, "rb+" if os.access(path, os.W_OK) else "rb"):
        pass  # a folder, or a file that may not be read, is refused here by the system itself
    damage = inspect_journal(path)[0]
    if damage:
        advice = "Use another store, or a backup copy."
        if is_repairable(path, damage):
            advice = f"gradwise search --out {path.parent} --resume runs again what is missing."
        raise RequestError(f"{path} is damaged or not a study: {describe_damage(damage)}. {advice}")
    try:
        return JournalStorage(SealedJournal(path))  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
        where = "its lines are not records of a study"
        raise RequestError(f"{path} is damaged or not a study: {where}. Use another store, or a backup copy.") from None


def _open_database(url: str, create: bool) -> Any:
    """The storage; tables are made only where a study is to be made."""
    from optuna.storages import RDBStorage
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    options: dict[str, Any] = {}
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": BUSY_SECONDS}
    elif url.startswith("postgresql"):
        options = {"connect_args": {"connect_timeout": max(2, round(BUSY_SECONDS))}, "pool_pre_ping": True}
    try:
        engine = create_engine(url, **options)
        tables = inspect(engine).has_table("studies")
        engine.dispose()
        if not tables and not create:
            raise RequestError(f"{without_password(url)} contains no study. Start one, or give the store of one.")
        return RDBStorage(url, engine_kwargs=options)
    except (ArgumentError, NoSuchModuleError, ValueError) as problem:
        if isinstance(problem, RequestError):
            raise
        forms = "study.journal, sqlite:///studies.db or postgresql://user@host/name"
        raise RequestError(f"{without_password(url)} is not a valid store. Write it as {forms}.") from None
    except ImportError as problem:
        driver = getattr(problem, "name", None) or getattr(problem.__cause__, "name", None) or "its driver"
        raise RequestError(f"{without_password(url)} needs the package {driver}: pip install {driver}.") from None
    except RuntimeError as problem:
        raise explain(url, problem, working=False) from None


def check_place(where: str | Path, *, create: bool) -> None:
    """Refuses a file that is not there, unless it is to be made in a folder that is."""
    path = file_of(where)
    if path is not None and not create and not path.exists():
        raise RequestError(f"no study in {without_password(where)}. Check the address, or start one there.")
    if path is not None and not path.absolute().parent.is_dir():
        raise RequestError(f"the folder {path.parent} does not exist. Create it first.")
    if path is not None and path.is_dir():
        raise RequestError(f"{path} is a folder; give the study file in it, such as {path / 'study.journal'}.")


def open_storage(where: str | Path, *, create: bool) -> Any:
    """The Optuna storage at a place. Nothing is made there unless a study is to be made."""
    with quiet_storage(), explain_errors(where, working=False):
        return _open_database(address(where), create) if is_url(where) else _open_journal(Path(where))


class FileOwner:
    """Holds a file by a lock on `FILE.owner` beside it: the file itself is opened and closed by others all the time."""

    def __init__(self, path: Path) -> None:
        from filelock import FileLock, Timeout

        self._path = Path(f"{path}.owner")
        if self._path.is_symlink():
            raise RequestError(f"{self._path} is a symbolic link: what it points at would be overwritten. Remove it.")
        self._lock = FileLock(self._path, timeout=0.1, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            holder = ""
            with contextlib.suppress(FileNotFoundError):  # released at this moment
                holder = self._path.read_text(errors="replace")
            told = f" ({holder})" if holder else ""
            raise RequestError(f"another process{told} is writing to {path}. Wait for it to end, or stop it.") from None
        self._path.write_text(f"process {os.getpid()} on {socket.gethostname()}")

    def renew(self) -> None:
        """Nothing to do: the system knows whether this process lives."""

    def release(self) -> None:
        self._path.unlink(missing_ok=True)  # first: who waits with it open then finds it gone and starts again
        self._lock.release()


_HELD: set[str] = set()  # the tokens of the marks by which this process holds a study


def _lives(mark: dict[str, Any]) -> bool:
    """Whether the owner may still be at work: a process of this machine is asked, of another by the age of its mark."""
    if time.time() - float(mark["time"]) > FRESH_SECONDS:
        return False
    if mark["host"] != socket.gethostname():
        return True
    if mark["process"] == os.getpid():  # one that it could not take away, because the server was gone, holds nothing
        return mark["token"] in _HELD
    try:
        os.kill(int(mark["process"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class DatabaseOwner:
    """Holds a study of a database by a mark with a time: host, process, when it was last renewed."""

    def __init__(self, where: str | Path, storage: Any, study: int) -> None:
        self._where, self._storage, self._study = where, storage, study
        self._token = os.urandom(8).hex()
        _HELD.add(self._token)
        mark = self._mark()
        if mark and _lives(mark):
            raise RequestError(
                f"process {mark['process']} on {mark['host']} is writing to the study in {without_password(where)}. "
                "Wait for it to end, or stop it; if it has ended, try again in a minute."
            )
        self._write()
        time.sleep(0.05)  # somebody who read the same old mark has written by now; the later one holds it
        self._check()

    def _mark(self) -> dict[str, Any]:
        return dict(self._storage.get_study_user_attrs(self._study).get(_MARK) or {})

    def _write(self) -> None:
        mark = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time(), "token": self._token}
        self._storage.set_study_user_attr(self._study, _MARK, mark)
        self._renewed = time.monotonic()

    def _check(self) -> None:
        mark = self._mark()
        if mark.get("token") != self._token:
            raise WorkError(
                f"another process ({mark.get('process')} on {mark.get('host')}) has taken over the study in "
                f"{without_password(self._where)}. Every earlier trial is saved."
            )

    def renew(self) -> None:
        """Says that this process is at work, a few times a minute; finds out whether another has taken over."""
        if time.monotonic() - self._renewed >= RENEW_SECONDS:
            self._check()
            self._write()

    def release(self) -> None:
        _HELD.discard(self._token)
        if self._mark().get("token") == self._token:
            self._storage.set_study_user_attr(self._study, _MARK, {})
