"""The answer so far: a model file that grows with the search, and never looks at the test part."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gradwise.records.trial import Trial
from gradwise.searching.running.device_runner import train_alone
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.run_jobs import as_trial
from gradwise.searching.selection import answer_so_far
from gradwise.searching.selection.answer_so_far import AnswerSoFar
from gradwise.searching.selection.finalists import decide
from gradwise.searching.storage.network_store import Contenders
from gradwise.training.committee import Committee
from gradwise.training.model_files import load_predictor
from tests.searching import small_study

ABOUT = {"metric": "error_rate"}


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return small_study.data_of(small_study.digits(200))


@pytest.fixture(scope="module")
def ended(data: EvaluationData) -> list[tuple[Done, Trial]]:
    jobs = [Job(n, small_study.recipe_at(rate), n) for n, rate in enumerate((0.1, 0.3, 0.5))]
    done = train_alone(data, jobs)
    return [(one, as_trial(one, job, {}, phase="search")) for one, job in zip(done, jobs, strict=True)]


def test_it_is_what_the_study_would_end_with(data: EvaluationData, ended: list, tmp_path: Path) -> None:
    answer = AnswerSoFar(tmp_path / "model.safetensors", data, kind="ensemble", about=ABOUT)
    answer._next = -1.0
    contenders, trials = Contenders(None), {}
    assert not answer.update(trials, contenders)
    for done, trial in ended:
        contenders.offer(done, trial.recipe)
        trials[trial.number] = trial
        answer._next = -1.0
        assert answer.update(trials, contenders)
        assert answer.seconds > 0
        found, about = load_predictor(answer.path)
        assert about == ABOUT
        wanted = decide(data, trials.values(), contenders.all(), kind="ensemble").committee
        assert wanted is not None
        rows = data.valid.inputs
        np.testing.assert_allclose(found.predict(rows), wanted.predict(rows), atol=1e-6)
    assert isinstance(found, Committee)
    assert not answer.update(trials, contenders)  # nothing new


def test_it_waits_so_that_it_takes_a_small_share(
    data: EvaluationData, ended: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(answer_so_far.time, "monotonic", lambda: now[0])
    answer = AnswerSoFar(tmp_path / "model.safetensors", data, kind="best", about=ABOUT)
    real = answer_so_far.decide

    def slow(*given: object, **options: object) -> object:
        now[0] += 2.0
        return real(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(answer_so_far, "decide", slow)
    contenders, trials = Contenders(None), {}
    moments = [(100.0, True, 2.0), (130.0, False, 4.0), (142.5, True, 2.0)]  # of twice the trials twice as long
    for (done, trial), (moment, written, next_one) in zip(ended, moments, strict=True):
        now[0] = moment
        contenders.offer(done, trial.recipe)
        trials[trial.number] = trial
        assert answer.update(trials, contenders) is written
        assert answer.concluding == next_one
    assert answer.seconds == 2.0


def test_the_test_part_is_not_read(data: EvaluationData, ended: list, tmp_path: Path) -> None:
    assert data.test is not None
    poisoned = dataclasses.replace(
        data, test=dataclasses.replace(data.test, inputs=np.full(data.test.inputs.shape, np.nan))
    )
    answer = AnswerSoFar(tmp_path / "model.safetensors", poisoned, kind="ensemble", about=ABOUT)
    contenders = Contenders(None)
    contenders.offer(ended[0][0], ended[0][1].recipe)
    assert answer.update({0: ended[0][1]}, contenders)


def test_without_a_file_it_still_tells_how_long_the_end_will_take(data: EvaluationData, ended: list) -> None:
    answer = AnswerSoFar(None, data, kind="ensemble", about=ABOUT)
    contenders = Contenders(None)
    contenders.offer(ended[0][0], ended[0][1].recipe)
    assert answer.update({0: ended[0][1]}, contenders)
    assert answer.concluding > 0
    silent = AnswerSoFar(None, data, kind=None, about=ABOUT)
    assert not silent.update({0: ended[0][1]}, contenders)
    assert silent.concluding == 0
