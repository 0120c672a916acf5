"""A PostgreSQL server from a temporary folder, for the tests of the store: a socket, no port, gone afterwards."""

import dataclasses
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PASSWORD = "open sesame"


def _programs() -> Path | None:
    """The folder of the newest server here, or None."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4))
    on_path = shutil.which("initdb")
    found = [*([Path(on_path).parent] if on_path else []), *reversed(homes)]
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _user() -> dict[str, int | str]:
    """Who runs the server: it refuses to run as root."""
    if os.getuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    chosen = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": chosen.pw_uid, "group": chosen.pw_gid}


@dataclasses.dataclass(frozen=True)
class Server:
    """`make` makes an empty database and gives its address; `stop` and `start` are an outage."""

    make: Callable[[str], str]
    stop: Callable[[], None]
    start: Callable[[], None]


@pytest.fixture(scope="session")
def postgres(postgres_server: Server) -> Callable[[str], str]:
    """A function that makes an empty database and gives its address; the user `guarded` needs a password."""
    return postgres_server.make


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server."""
    driver = pytest.importorskip("psycopg2", reason="the driver psycopg2 is not installed")
    programs = _programs()
    if programs is None:
        pytest.skip("there is no PostgreSQL server here (initdb)")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a database is a thousand small files
    folder = Path(tempfile.mkdtemp(prefix="gwpg", dir=memory))  # and a socket's path must be short
    who = _user()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(folder)}

    def call(*command: str) -> None:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, **who)  # type: ignore[call-overload]
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"

    def sql(statement: str) -> None:
        connection = driver.connect(host=str(folder), user="owner", dbname="postgres")
        connection.autocommit = True
        connection.cursor().execute(statement)
        connection.close()

    data = folder / "data"
    try:
        if who:
            os.chown(folder, int(who["user"]), int(who["group"]))
        call(str(programs / "initdb"), "-D", str(data), "-U", "owner", "-A", "trust", "--no-sync", "-E", "UTF8")
        (data / "pg_hba.conf").write_text("local all guarded scram-sha-256\nlocal all all trust\n")
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c full_page_writes=off -c shared_buffers=16MB"
        start = [str(programs / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start"]
        stop = [str(programs / "pg_ctl"), "-D", str(data), "-m", "fast", "-w", "stop"]

        def control(command: list[str]) -> None:
            # The server inherits what is open: a pipe would never close.
            subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True, **who)  # type: ignore[call-overload]

        control(start)
        sql(f"CREATE ROLE guarded LOGIN PASSWORD '{_PASSWORD}'")

        def make(name: str) -> str:
            sql(f'CREATE DATABASE "{name}"')
            return f"postgresql://owner@/{name}?host={folder}"

        yield Server(make, lambda: control(stop), lambda: control(start))
    finally:
        subprocess.run(
            [str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            **who,  # type: ignore[call-overload]
        )
        shutil.rmtree(folder, ignore_errors=True)
