"""A tiny study that worker processes can import: iris, nets of a few units, and parts that fail in every way."""

import dataclasses
import os
from typing import Any

import equinox as eqx
import numpy as np

from gradwise import defaults
from gradwise.criteria.losses import AbstractLoss, SoftmaxLoss
from gradwise.data.batches import Reshuffled
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.running.device_runner import DeviceRunner
from gradwise.searching.running.evaluation_data import EvaluationData
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.storage.job_checkpoints import JobCheckpoints
from gradwise.specs.contracts import AbstractModel
from gradwise.specs.dataset import Classes, Column, Dataset
from gradwise.specs.knobs import switch
from gradwise.specs.recipe import Recipe
from gradwise.training.stopping import Patience


def data() -> EvaluationData:
    from sklearn.datasets import load_iris

    bunch = load_iris()
    columns = tuple(Column(str(name)) for name in bunch.feature_names)
    dataset = Dataset(bunch.data, bunch.target, Classes(np.asarray(bunch.target_names)), columns, name="iris")
    return EvaluationData.of(dataset, defaults.classification().split, metric="error_rate", key=keys.from_seed(0))


def recipe(*, rate: float = 0.1, epochs: int = 20, **parts: Any) -> Recipe:
    """A net of 8 units; patience never ends it, so that every run is as long as it says."""
    chosen = defaults.classification(
        batches=Reshuffled(8),
        model=Mlp(widths=(8,), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(learning_rate=rate),
        stopping=Patience(initial_examples=10**9, initial_epochs=0, spacing=1.0, least_examples=1, epochs=epochs),
    )
    return dataclasses.replace(chosen, **parts)


def jobs(count: int, *, start: int = 0, **options: Any) -> list[Job]:
    """Jobs that differ in their learning rate."""
    return [Job(n, recipe(rate=0.02 * (1 + n % 7), **options), n) for n in range(start, start + count)]


def assert_same(found: list[Done], wanted: list[Done]) -> None:
    """Each job once, with the same numbers."""
    found, wanted = (sorted(some, key=lambda done: done.number) for some in (found, wanted))
    assert [done.number for done in found] == [done.number for done in wanted]
    assert [done.outcome for done in found] == [done.outcome for done in wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose([one.score, one.loss], [other.score, other.loss], atol=1e-3)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-3)
        assert one.best_age == other.best_age
        assert one.curve["age_examples"] == other.curve["age_examples"]


def begin_training(data: EvaluationData, jobs: list[Job], checkpoints: JobCheckpoints) -> None:
    """Trains these jobs in this process for a while; their files say that the first loss was 123."""
    runner = DeviceRunner(data, checkpoints=checkpoints)
    runner.submit(jobs)
    for _ in range(3):
        runner.turn()
    for cohort in runner.cohorts.values():
        assert cohort.population is not None
        for slot, place in cohort.places.items():
            saved = checkpoints.load(place.job, cohort.population.state_of(slot))
            assert saved is not None
            saved.history["valid_loss"][0] = 123.0
            checkpoints.save(place.job, saved)


class Deadly(AbstractModel):
    """A model that ends any process but one that tries to build it."""

    spared: int = switch(0, row="E16", about="the process that may not try")

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Any) -> Any:
        assert os.getpid() != self.spared
        os._exit(13)


class Refused(AbstractModel):
    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Any) -> Any:
        raise RequestError(f"this model wants another number of inputs than {inputs}.")


class Linear(AbstractModel):
    """A model of the user's own."""

    def build(self, inputs: tuple[int, ...], outputs: int, *, key: Any) -> Any:
        return eqx.nn.Linear(inputs[0], outputs, key=key)


class Broken(AbstractLoss):
    """A loss of the user's own with a mistake in it."""

    def loss(self, output: Any, target: Any) -> Any:
        raise ZeroDivisionError("a mistake in the user's own loss")

    def score(self, output: Any, target: Any) -> Any:
        return SoftmaxLoss().score(output, target)

    def link(self, output: Any) -> Any:
        return SoftmaxLoss().link(output)

    def task(self) -> str:
        return SoftmaxLoss().task()


def plain_loss(model: Any, batch: Any, key: Any) -> Any:
    """A criterion that is a function; it says too little for classes, which costs its trial."""
    raise AssertionError("it is refused before it is called")
