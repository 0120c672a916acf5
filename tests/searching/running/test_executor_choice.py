"""Who trains, in a word; nobody is hired in vain."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest

from gradwise.models.activations import Parametric, Sigmoid, Tanh
from gradwise.models.mlp import Mlp
from gradwise.runtime.errors import RequestError
from gradwise.searching.running import executor_choice
from gradwise.searching.running.device_runner import Varied
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.executor_choice import choose_executor, trials_at_once, varying
from gradwise.searching.running.executors import LocalExecutor
from gradwise.searching.running.population_size import BySize, Given
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Space, dimension
from tests.searching import tiny


@pytest.fixture(scope="module")
def data() -> EvaluationData:
    return tiny.data()


@pytest.fixture(scope="module")
def space() -> Space:
    recipe = tiny.recipe()
    rate = dimension(recipe, "optimiser.learning_rate", LogUniform(1e-3, 1.0))
    return Space(recipe, (rate, dimension(recipe, "model.dropout", ZeroOr(Uniform(0.1, 0.5)))))


@dataclasses.dataclass
class Hired:
    """Stands for worker processes."""

    data: EvaluationData
    count: int
    slots: Any
    varying: Varied
    checkpoints: JobCheckpoints


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cores, and workers that are no processes."""
    monkeypatch.setattr(executor_choice, "_cores", lambda: 3)
    monkeypatch.setattr(executor_choice, "WorkerProcesses", Hired)


def test_nobody_named_is_a_worker_for_each_core(data: EvaluationData, space: Space, cores: None) -> None:
    hired: Any = choose_executor(None, data, space)
    assert isinstance(hired, Hired)
    assert (hired.count, hired.varying.knobs) == (3, ("model.dropout",))
    assert isinstance(hired.slots, BySize)
    assert hired.data is data


def test_one_core_is_this_process(
    data: EvaluationData, space: Space, cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_choice, "_cores", lambda: 1)
    assert isinstance(choose_executor(None, data, space), LocalExecutor)


def test_an_accelerator_is_this_process(
    data: EvaluationData, space: Space, cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for word in (None, "gpu"):
        assert isinstance(choose_executor(word, data, space), LocalExecutor)


@pytest.mark.parametrize(("word", "count"), [("workers", 3), ("workers:5", 5), (" Workers:1 ", 1), ("cpu", 3)])
def test_workers_are_counted(data: EvaluationData, space: Space, cores: None, word: str, count: int) -> None:
    checkpoints = JobCheckpoints(Path("running"), 10.0)
    hired: Any = choose_executor(word, data, space, slots=Given(2), checkpoints=checkpoints)
    assert (hired.count, hired.slots.count, hired.checkpoints) == (count, 2, checkpoints)


def test_here_is_here(data: EvaluationData, space: Space, cores: None) -> None:
    checkpoints = JobCheckpoints(Path("running"), 10.0)
    hired = choose_executor("here", data, space, slots=Given(2), checkpoints=checkpoints)
    assert isinstance(hired, LocalExecutor)
    assert hired.runner.checkpoints is checkpoints
    assert isinstance(hired.runner.slots, Given)


def test_what_cannot_travel_is_trained_here(data: EvaluationData, space: Space, cores: None) -> None:
    """A part that was defined in the script itself, or a function: other processes cannot import it."""
    own = type("Own", (tiny.Linear,), {"__module__": "__main__"})
    for part in ({"model": own()}, {"criterion": lambda model, batch, key: 0.0}):
        stranger = Space(dataclasses.replace(space.recipe, **part), space.dimensions[:1])
        assert isinstance(choose_executor(None, data, stranger), LocalExecutor)
    known = Space(dataclasses.replace(space.recipe, model=tiny.Linear()), space.dimensions[:1])
    assert isinstance(choose_executor(None, data, known), Hired)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("workers:0", "`workers:0`: give at least one worker"),
        ("worker", "unknown device `worker`; choose here, cpu, gpu, workers:N, ray or ray://host:port"),
        ("workers:-1", "unknown device `workers:-1`"),
        ("gpu", "JAX found no GPU"),
    ],
)
def test_nobody_is_refused_in_one_line(data: EvaluationData, space: Space, cores: None, word: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as refusal:
        choose_executor(word, data, space)
    assert "\n" not in str(refusal.value)


def test_varying_knobs_are_those_that_can_be_off(space: Space) -> None:
    assert varying(space).knobs == ("model.dropout",)


@pytest.mark.parametrize(
    ("trials", "folds", "by_time", "many"),
    [
        (100, 5, False, 50),
        (40, 5, False, 40),
        (100, 5, True, 25),
        (12, 5, True, 8),
        (4000, 5, True, 51),
        (None, 5, True, 16),
    ],
)
def test_an_accelerator_has_generations_of_one_size(trials: int | None, folds: int, by_time: bool, many: int) -> None:
    """A hundred by number are two times fifty; by time at least four generations end."""
    assert trials_at_once(trials, folds, by_time=by_time) == many


def test_sizes_and_activations_of_the_space_are_known_to_who_trains() -> None:
    recipe = tiny.recipe(model=Mlp(widths=(20,), activation=Tanh()))
    assert varying(Space(recipe, ())) == Varied(widest=20)
    priors = {
        "model.widths.count": Choice((1, 2, 3)),
        "model.widths.each": LogInteger(8, 100),
        "model.activation": Choice((Tanh(), Sigmoid())),
    }
    space = Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in priors.items()))
    assert varying(space) == Varied(deepest=3, widest=100, activations=(Tanh(), Sigmoid()))
    learned = Choice((Tanh(), Parametric(Tanh())))
    assert varying(Space(recipe, (dimension(recipe, "model.activation", learned),))).activations == ()
    assert varying(Space(tiny.recipe(model=tiny.Linear()), ())) == Varied()
