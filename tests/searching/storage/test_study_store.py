"""The store of a study, over a journal file, SQLite and PostgreSQL: the same promises for each."""

import cProfile
import dataclasses
import io
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import types
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.records.trial import Trial
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.searching.storage import backend
from gradwise.searching.storage.study_identity import StudyIdentity
from gradwise.searching.storage.study_store import Store
from gradwise.searching.strategies.random_search import Random, Sobol, chosen_values
from gradwise.specs.priors import Choice, LogInteger, LogUniform, ZeroOr
from gradwise.specs.search_space import Space, dimension
from tests.searching.postgres import Server, postgres, postgres_server  # noqa: F401  beside this file

ROOT = Path(__file__).parents[3]
# Optuna tries a failed writing again after up to two seconds, four times; here nothing gets better by waiting.
IMPATIENT = types.SimpleNamespace(random=lambda: 0.0)
RETRIES = "optuna.storages._rdb.storage.random"
RATE = "optimiser.optimiser.learning_rate"


def make_about(**changes: Any) -> StudyIdentity:
    recipe = defaults.classification()
    priors = {
        "model.activation": Choice((Tanh(), Rectifier())),
        "model.widths.count": Choice((1, 2, 3)),
        "model.widths.each": LogInteger(16, 256),
        "criterion.penalties.0.coefficient": ZeroOr(LogUniform(1e-6, 1e-2)),
        RATE: LogUniform(1e-4, 1e-1),
    }
    space = Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in priors.items()))
    plain = StudyIdentity(space, 0, Random(), "digest", "classes", "error_rate", {"budget": "9 trials"})
    return dataclasses.replace(plain, **changes)


def make_trial(number: int, about: StudyIdentity | None = None, **changes: Any) -> Trial:
    space = (about or make_about()).space
    fraction = (number * 0.618) % 1
    recipe = space.recipe_at(dict.fromkeys(space.paths, fraction))
    fields: dict[str, Any] = {
        "score": 0.1 + fraction,
        "loss": 1.5,
        "train_loss": 0.25,
        "age_examples": 1000,
        "best_age": 800,
        "seconds": 2.5,
        "parameters": 77,
        "curve": {"age_examples": [500.0, 1000.0], "valid_score": [0.75, math.inf]},
    }
    return Trial(number, recipe, chosen_values(space, recipe), "patience", **{**fields, **changes})


def failed(number: int, outcome: str = "diverged", **changes: Any) -> Trial:
    nothing = {"score": math.nan, "loss": math.nan, "train_loss": math.nan, "curve": {}}
    return dataclasses.replace(make_trial(number, **nothing, **changes), outcome=outcome)


def same(one: Trial, other: Trial) -> bool:
    """Equality that takes not-a-number for itself."""
    return repr(dataclasses.replace(one, recipe=None, curve={})) == repr(
        dataclasses.replace(other, recipe=None, curve={})
    ) and bool(one.recipe == other.recipe)


@pytest.fixture(params=["journal", "sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "journal":
        return str(tmp_path / "study.journal")
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'studies.db'}"
    make: Callable[[str], str] = request.getfixturevalue("postgres")
    return make(f"db{uuid.uuid4().hex[:12]}")


def contents(where: str) -> Any:
    """Whatever is kept there, to prove that nothing was touched."""
    import optuna

    file = backend.file_of(where)
    if file is not None:
        return file.read_bytes() if file.exists() else None
    storage = optuna.storages.RDBStorage(backend.address(where))
    found = [(s.study_name, s.user_attrs, len(storage.get_all_trials(s._study_id))) for s in storage.get_all_studies()]
    storage.remove_session()
    storage.engine.dispose()
    return found


def refusal(where: str, **options: Any) -> str:
    """The one line with which opening is refused, having touched nothing."""
    before = contents(where)
    with pytest.raises(RequestError) as caught:
        Store.open(where, **options)
    assert contents(where) == before
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


def test_every_trial_comes_back_as_it_was_failures_too(where: str) -> None:
    about = make_about()
    trials = [
        make_trial(3),
        failed(0, reason="the loss is not a number"),
        failed(2, "failed", reason="ValueError: boom\nat line 3"),
        make_trial(1, phase="finalist", continues=3, examples=64),
    ]
    with Store.open(where, create=True, about=about) as store:
        for trial in trials:
            store.add(trial)
        assert [trial.number for trial in store.trials()] == [0, 1, 2, 3]
    with Store.open(where, write=False) as store:
        read = store.trials()
        assert store.about.to_plain() == about.to_plain()
    for trial, back in zip(sorted(trials, key=lambda t: t.number), read, strict=True):
        assert same(trial, back)
        assert back.recipe == trial.recipe
    assert read[3].curve["valid_score"][0] == 0.75
    assert math.isnan(read[3].curve["valid_score"][1])
    assert not read[0].ok
    assert math.isnan(read[0].score)


def test_a_study_goes_on_and_grows(where: str) -> None:
    about = make_about()
    with Store.open(where, create=True, about=about) as store:
        store.add(make_trial(0))
        store.spend(3.0)
        store.spend(4.0)
    grown = dataclasses.replace(about, settings={"budget": "+50 trials"})
    with Store.open(where, about=grown) as store:
        assert len(store) == 1
        assert store.seconds == 7.0
        store.add(make_trial(1))
        with pytest.raises(ValueError, match="already"):
            store.add(make_trial(0))
        store.spend(1.0)
        store.settle(grown.settings)
    with Store.open(where, write=False) as store:
        assert [trial.number for trial in store.trials()] == [0, 1]
        assert store.seconds == 8.0
        assert store.about.settings == {"budget": "+50 trials"}


@pytest.mark.slow
def test_another_study_is_refused(where: str) -> None:
    about = make_about()
    with Store.open(where, create=True, about=about):
        pass
    other = make_about().space
    narrower = other.with_priors({RATE: LogUniform(1e-3, 1e-1)})
    cases = {
        "data are different": dataclasses.replace(about, data="another"),
        "its task is classes": dataclasses.replace(about, task="numbers"),
        "its metric is error_rate": dataclasses.replace(about, metric="log_loss"),
        "its seed is 0": dataclasses.replace(about, seed=1),
        "its strategy is Random": dataclasses.replace(about, strategy=Sobol()),
        f"`{RATE}` has another range": dataclasses.replace(about, space=narrower),
        "`model.activation` is searched too": dataclasses.replace(about, space=other.only([RATE])),
        "its recipe is different": dataclasses.replace(about, space=Space(defaults.regression(), other.dimensions)),
        "another order": dataclasses.replace(about, space=Space(other.recipe, other.dimensions[::-1])),
    }
    for words, given in cases.items():
        assert words in refusal(where, about=given)
    assert "already contains a study 'gradwise'" in refusal(where, create=True, about=about)


def test_another_format_is_refused(where: str) -> None:
    with Store.open(where, create=True, about=make_about()) as store:
        later = {**store.about.to_plain(), "format": 2, "version": "9.9.9"}
        store._storage.set_study_user_attr(store._id, "gradwise", later)
    assert "has format 2, written by gradwise 9.9.9" in refusal(where)


def test_a_plain_optuna_study_is_refused(where: str) -> None:
    import optuna

    with backend.quiet_storage():
        storage: Any = (
            optuna.storages.RDBStorage(backend.address(where))
            if backend.is_url(where)
            else optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(where))
        )
        study = optuna.create_study(storage=storage, study_name="mine")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    if backend.is_url(where):
        storage.remove_session()
        storage.engine.dispose()
    assert "'mine'" in refusal(where)
    assert "was not written by gradwise" in refusal(where, about=make_about())


def test_of_several_studies_one_must_be_named(where: str) -> None:
    for name in ("first", "second"):
        with Store.open(where, name, create=True, about=make_about()) as store:
            store.add(make_trial(len(name)))
    assert "contains 2 studies: first, second" in refusal(where)
    assert "Did you mean 'second'?" in refusal(where, name="secund")
    with Store.open(where, "second") as store:
        assert [trial.number for trial in store.trials()] == [6]


def test_a_new_journal_is_not_written_through_a_planted_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "study.journal.new").symlink_to(tmp_path / "precious")
    with Store.open(tmp_path / "study.journal", create=True, about=make_about()):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_two_processes_cannot_write_the_same_study(where: str) -> None:
    with Store.open(where, create=True, about=make_about()) as store:
        with pytest.raises(RequestError, match=f"process.* {os.getpid()} on .* writing to"):
            Store.open(where, about=make_about())
        store.add(make_trial(0))
        with Store.open(where, write=False) as looking:
            assert len(looking) == 1
            with pytest.raises(AssertionError, match="read-only"):
                looking.add(make_trial(1))
    with Store.open(where, about=make_about()) as store:
        store.add(make_trial(1))


def test_a_mark_is_kept_while_fresh_and_taken_over_when_stale(
    postgres: Callable[[str], str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = postgres("marks")
    monkeypatch.setattr(backend, "RENEW_SECONDS", 0.0)
    slow = Store.open(where, create=True, about=make_about())
    elsewhere = {"host": "elsewhere", "process": 1, "time": time.time(), "token": slow._owner._token}
    slow._storage.set_study_user_attr(slow._id, "gradwise:owner", elsewhere)
    assert "process 1 on elsewhere is writing" in refusal(where)
    stale = {**elsewhere, "time": time.time() - 61}
    slow._storage.set_study_user_attr(slow._id, "gradwise:owner", stale)
    with Store.open(where) as quick:
        quick.add(make_trial(0))
        with pytest.raises(WorkError, match="has taken over"):  # the slow one wakes up
            slow.add(make_trial(7))
        quick.add(make_trial(1))
    slow.close()
    with Store.open(where, write=False) as store:
        assert len(store) == 2


CHILD = """
    import os, sys
    from tests.searching.storage.test_study_store import *
    store = Store.open(sys.argv[1], create=True, about=make_about())
    for number in range(1000):
        store.add(make_trial(number))
        print(number, flush=True)
"""


def run_child(code: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.slow
def test_a_kill_loses_no_trial_that_was_written(where: str) -> None:
    child = run_child(CHILD, where)
    assert child.stdout is not None
    last = -1
    for line in child.stdout:
        last = int(line)
        if last >= 5:
            break
    child.send_signal(signal.SIGKILL)
    rest = child.communicate()[0].split()
    last = int(rest[-1]) if rest else last
    with Store.open(where, about=make_about()) as store:  # at once: the dead process holds nothing
        numbers = [trial.number for trial in store.trials()]
        assert numbers in (list(range(last + 1)), list(range(last + 2)))  # it may have died before it could tell
        store.add(make_trial(len(numbers)))
    with Store.open(where, write=False) as store:
        assert len(store) == len(numbers) + 1
        assert all(same(trial, make_trial(trial.number)) for trial in store.trials())


@pytest.mark.parametrize("left", ["half", "a letter", "all but the end of the line"])
def test_a_torn_last_line_is_read_past_and_mended(tmp_path: Path, left: str) -> None:
    path = tmp_path / "study.journal"
    with Store.open(path, create=True, about=make_about()) as store:
        store.add(make_trial(0))
        before = path.stat().st_size
        store.add(make_trial(1))
    content = path.read_bytes()
    sizes = {
        "half": (before + len(content)) // 2,
        "a letter": before + 1,
        "all but the end of the line": len(content) - 1,
    }
    path.write_bytes(content[: sizes[left]])
    with Store.open(path, write=False) as store:
        assert [trial.number for trial in store.trials()] == [0]
        assert not store.mended
    assert path.stat().st_size == sizes[left]
    with Store.open(path, about=make_about()) as store:
        assert store.mended
        if len(store) == 1:  # the whole line was there but for its end: then the trial is, too
            store.add(make_trial(1))
        store.add(make_trial(2))
    with Store.open(path) as store:
        assert not store.mended
        assert [trial.number for trial in store.trials()] == [0, 1, 2]


def test_a_lock_that_a_killed_viewer_left_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    with Store.open(path, create=True, about=make_about()):
        pass
    os.symlink(path, f"{path}.lock")
    with Store.open(path) as store:
        store.add(make_trial(0))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["study.journal"]


def test_a_damaged_journal_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    with Store.open(path, create=True, about=make_about()) as store:
        store.add(make_trial(0))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"#" + lines[1], *lines[2:]]))
    assert "line 2 is not a record" in refusal(str(path))


def test_places_that_are_wrong(tmp_path: Path) -> None:
    about = make_about()
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "line.txt").write_text("hello\n")
    (tmp_path / "list.json").write_text('{"a": 1}\n{"b": 2}\n')
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    cases = {
        str(tmp_path / "none.journal"): "no study in",
        f"sqlite:///{tmp_path / 'none.db'}": "no study in",
        str(tmp_path / "nowhere" / "study.journal"): "no study in",
        str(tmp_path): "is a folder",
        str(tmp_path / "table.csv"): "line 1 is not a record",
        str(tmp_path / "line.txt"): "line 1 is not a record",
        str(tmp_path / "list.json"): "its lines are not records",
        f"sqlite:///{tmp_path / 'other.db'}": "contains no study",
        f"sqlite:///{tmp_path / 'table.csv'}": "it is not a SQLite database",
        "nosuch://host/name": "is not a valid store",
        "mysql+nosuchdriver://host/name": "is not a valid store",
        "postgresql+asyncpg://host/name": "needs the package asyncpg",
    }
    for given, words in cases.items():
        with pytest.raises(RequestError) as caught:
            Store.open(given)
        assert words in str(caught.value), str(caught.value)
        assert "\n" not in str(caught.value)
    for given in (str(tmp_path / "nowhere" / "study.journal"), f"sqlite:///{tmp_path / 'nowhere' / 's.db'}"):
        with pytest.raises(RequestError, match=r"the folder .* does not exist"):
            Store.open(given, create=True, about=about)
    names = {"table.csv", "line.txt", "list.json", "other.db"}
    assert {item.name for item in tmp_path.iterdir()} == names  # nothing was made


def test_an_unreachable_server_and_wrong_credentials(
    postgres: Callable[[str], str],  # noqa: F811
) -> None:
    good = postgres("credentials")
    folder = good.partition("host=")[2]
    cases = {
        f"postgresql://guarded:wrong@/credentials?host={folder}": "wrong user or password",
        f"postgresql://guarded@/credentials?host={folder}": "wrong user or password",
        f"postgresql://stranger@/credentials?host={folder}": "unknown user",
        f"postgresql://owner@/missing?host={folder}": "unknown database",
        "postgresql://owner@127.0.0.1:1/credentials": "the server does not answer",
        f"postgresql://owner@/credentials?host={folder}/nowhere": "the server does not answer",
    }
    for where, words in cases.items():
        with pytest.raises(RequestError) as caught:
            Store.open(where, create=True, about=make_about())
        assert words in str(caught.value), str(caught.value)
        assert "wrong@" not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_database_that_is_lost_while_working(
    postgres: Callable[[str], str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sqlalchemy

    monkeypatch.setattr(RETRIES, IMPATIENT)

    where = postgres("lost")
    with Store.open(where, create=True, about=make_about()) as store:
        store.add(make_trial(0))
        store._storage.engine.dispose()  # a database with connections cannot be renamed
        engine = sqlalchemy.create_engine(
            backend.address(where).replace("/lost?", "/postgres?"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("ALTER DATABASE lost RENAME TO found"))
        with pytest.raises(WorkError, match="unknown database"):
            store.add(make_trial(1))
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("ALTER DATABASE found RENAME TO lost"))
        engine.dispose()
        store.add(make_trial(1))
    with Store.open(where, write=False) as store:
        assert len(store) == 2


def test_a_server_that_comes_back_is_waited_for_and_one_that_does_not_is_named(
    postgres_server: Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RETRIES, IMPATIENT)
    where = postgres_server.make("outage")
    said: list[str] = []
    with Store.open(where, create=True, about=make_about()) as store:
        store.notice = said.append
        store.add(make_trial(0))
        postgres_server.stop()
        back = threading.Timer(1.5, postgres_server.start)
        back.start()
        store.add(make_trial(1))
        back.join()
        assert len(said) == 1
        assert "does not answer: waiting for it for 60 seconds" in said[0]
        monkeypatch.setattr(backend, "OUTAGE_SECONDS", 0.5)
        postgres_server.stop()
        try:
            with pytest.raises(WorkError, match="the server does not answer"):
                store.add(make_trial(2))
            begun = time.monotonic()
            with pytest.raises(WorkError, match="the server does not answer"):
                store.add(make_trial(2))
            assert time.monotonic() - begun < 0.9  # waited for once
        finally:
            postgres_server.start()
    with Store.open(where, write=False) as store:
        assert [trial.number for trial in store.trials()] == [0, 1]


def test_a_locked_sqlite_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(RETRIES, IMPATIENT)
    path = tmp_path / "studies.db"
    with Store.open(f"sqlite:///{path}", create=True, about=make_about()) as store:
        store.add(make_trial(0))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(WorkError, match="another program is writing to it"):
            store.add(make_trial(1))
        with pytest.raises(RequestError, match="another program is writing to it"):
            Store.open(f"sqlite:///{path}", write=False)
        other.execute("ROLLBACK")
        other.close()
        store.add(make_trial(1))
        assert len(store) == 2


FULL = """
    import resource, sys
    from tests.searching.storage.test_study_store import *
    import optuna.storages._rdb.storage
    optuna.storages._rdb.storage.random = IMPATIENT
    store = Store.open(sys.argv[1], create=True, about=make_about())
    store.add(make_trial(0))
    size = backend.file_of(sys.argv[1]).stat().st_size
    limit = size + int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        for number in range(1, 1000):
            store.add(make_trial(number, curve={"age_examples": [1.5] * 1000}))
    except WorkError as problem:
        print(len(store), problem)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "room"), [("journal", 20_000), ("sqlite", 40_000)])
def test_a_full_disk_keeps_what_was_written(tmp_path: Path, kind: str, room: int) -> None:
    where = str(tmp_path / "study.journal") if kind == "journal" else f"sqlite:///{tmp_path / 'studies.db'}"
    child = run_child(FULL, where, str(room))
    printed, problems = child.communicate(timeout=120)
    assert child.returncode == 0, problems
    count, _, message = printed.strip().partition(" ")
    assert message.startswith(f"could not write to the study in {where}: ")
    assert "\n" not in message
    assert int(count) > 1
    content = contents(where)
    assert kind != "journal" or content.endswith(b"\n")  # the line that had no room is gone
    with Store.open(where, about=make_about()) as store:
        assert [trial.number for trial in store.trials()] == list(range(int(count)))
        store.add(make_trial(int(count)))
        assert len(store) == int(count) + 1


def test_optuna_opens_it_and_shows_the_knobs(where: str) -> None:
    import optuna

    about = make_about()
    with Store.open(where, create=True, about=about) as store:
        store.add(make_trial(4))
        store.add(failed(1, reason="the loss is not a number"))
        beyond = about.space.recipe_of({RATE: 0.5})  # a border that was extended
        store.add(dataclasses.replace(make_trial(2), recipe=beyond, values=chosen_values(about.space, beyond)))
        odd = {"model.widths.count": 9, "somewhere.else": 3, RATE: 0.0}
        store.add(dataclasses.replace(make_trial(5), values=odd))
    address: Any = backend.address(where)
    if not backend.is_url(where):
        address = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(where))
    study = optuna.load_study(study_name=None, storage=address)
    assert study.direction == optuna.study.StudyDirection.MINIMIZE
    first, second, third, fourth = study.trials
    assert first.state == optuna.trial.TrialState.COMPLETE
    assert first.value == make_trial(4).score
    assert first.params[RATE] == pytest.approx(make_trial(4).values[RATE])
    assert first.params["model.activation"] == "Tanh()"
    assert first.params["criterion.penalties.0.coefficient.on"] is False
    assert first.user_attrs["number"] == 4
    assert first.duration is not None
    assert first.duration.total_seconds() == pytest.approx(2.5)
    assert second.state == optuna.trial.TrialState.FAIL
    assert second.user_attrs["outcome"] == "diverged"
    assert second.user_attrs["reason"] == "the loss is not a number"
    assert json.loads(second.user_attrs["gradwise"])["age_examples"] == 1000
    assert third.params[RATE] == 0.5
    assert third.distributions[RATE].high == 0.5
    assert fourth.params == {}  # what fits no distribution is left to the trial itself
    assert study.best_trial.user_attrs["number"] in {4, 2, 5}
    if backend.is_url(where):
        study._storage.remove_session()  # type: ignore[attr-defined]
        study._storage._backend.engine.dispose()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("default")  # the dashboard's own, of its own libraries
def test_the_dashboard_serves_it(tmp_path: Path) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    import optuna

    path = tmp_path / "study.journal"
    with Store.open(path, create=True, about=make_about()) as store:
        store.add(make_trial(0))
        store.add(failed(1))
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    app = dashboard.wsgi(optuna.storages.JournalStorage(backend))

    def get(address: str) -> Any:
        status: list[str] = []
        request = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": address,
            "QUERY_STRING": "",
            "SERVER_NAME": "here",
            "SERVER_PORT": "80",
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": io.StringIO(),
        }
        body = b"".join(app(request, lambda code, headers, *rest: status.append(code)))
        assert status == ["200 OK"], body
        return json.loads(body)

    summaries = get("/api/studies")["study_summaries"]
    assert [summary["study_name"] for summary in summaries] == ["gradwise"]
    trials = get(f"/api/studies/{summaries[0]['study_id']}")["trials"]
    assert [trial["state"] for trial in trials] == ["Complete", "Fail"]
    assert RATE in {param["name"] for param in trials[0]["params"]}


def _calls(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls: what it costs, on any machine, however busy."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def test_a_trial_costs_the_same_however_many_came_before(tmp_path: Path) -> None:
    """The seconds are what `benchmarks/search_overhead.py` measures."""
    path, about = tmp_path / "study.journal", make_about()
    with Store.open(path, create=True, about=about) as store:
        costs = [_calls(partial(store.add, make_trial(number, about))) for number in range(150)]
    assert max(costs[100:]) < 1.2 * max(costs[1:50])

    def read() -> None:
        with Store.open(path, write=False) as store:
            assert len(store.trials()) == 150

    assert _calls(read) < 150 * max(costs[1:])
