"""A study of tiny networks on real digits, small enough that a test can run it to its end."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import Standardise
from gradwise.data.splits import HoldOut
from gradwise.models.activations import Tanh
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.records.trial import Trial
from gradwise.runtime import keys
from gradwise.searching.running.device_runner import train_alone
from gradwise.searching.running.evaluation_data import WHOLE, EvaluationData, Variant
from gradwise.searching.running.jobs import Done, Job
from gradwise.searching.running.run_jobs import as_trial
from gradwise.searching.storage.network_store import TrainedTrial, keep_trial
from gradwise.specs.dataset import Classes, Column, Dataset, Numbers
from gradwise.specs.recipe import Recipe
from gradwise.training.stopping import Off


def digits(rows: int = 500, *, noise: bool = False) -> Dataset:
    """Some of the digits; with `noise`, labels that have nothing to do with them."""
    from sklearn.datasets import load_digits

    data, target = load_digits(return_X_y=True)
    columns = tuple(Column(f"pixel {place}") for place in range(data.shape[1]))
    targets = np.random.default_rng(1).permutation(target) if noise else target
    return Dataset(data[:rows], targets[:rows], Classes(np.array([str(d) for d in range(10)])), columns)


def diabetes() -> Dataset:
    from sklearn.datasets import load_diabetes

    data, target = load_diabetes(return_X_y=True)
    columns = tuple(Column(f"column {place}") for place in range(data.shape[1]))
    return Dataset(data, target[:, None].astype(float), Numbers(), columns)


def recipe_at(rate: float = 0.1, *, dataset: Dataset | None = None, epochs: float = 6.0) -> Recipe:
    task = digits(20).task if dataset is None else dataset.task
    return defaults.for_task(
        task,
        split=HoldOut(0.3, 0.3),
        scaler=Standardise(),
        batches=Reshuffled(25),
        model=Mlp(widths=(6,), activation=Tanh(), dropout=0.0),
        optimiser=Sgd(learning_rate=rate),
        stopping=Off(epochs=epochs, spacing=1.0),
    )


def data_of(dataset: Dataset, *, metric: str = "error_rate", seed: int = 0, **options: Any) -> EvaluationData:
    return EvaluationData.of(dataset, HoldOut(0.3, 0.3), metric=metric, key=keys.from_seed(seed), **options)


def run(
    data: EvaluationData,
    recipes: Sequence[Recipe],
    *,
    start: int = 0,
    phase: str = "search",
    variants: Sequence[Variant] = (WHOLE,),
) -> tuple[list[Trial], list[TrainedTrial]]:
    """Trains these recipes, one trial each with its own randomness; recipe n is trained on variant n of those given."""
    jobs = [Job(start + n, recipe, start + n, variant=variants[n % len(variants)]) for n, recipe in enumerate(recipes)]
    trials, kept = [], []
    for done, job in zip(train_alone(data, jobs), jobs, strict=True):
        values = {"optimiser.learning_rate": float(job.recipe.optimiser.learning_rate)}  # type: ignore[attr-defined]
        trials.append(as_trial(done, job, values, phase=phase))
        one = keep_trial(done, job.recipe, (job.variant,), always=phase == "finalist")
        assert one is not None
        kept.append(one)
    return trials, kept


def run_folds(data: EvaluationData, recipe: Recipe, number: int, phase: str = "search") -> tuple[Trial, TrainedTrial]:
    """One trial that is a training for each fold."""
    variants = data.variants
    jobs = [Job(number * 64 + n, recipe, number, variant=variant) for n, variant in enumerate(variants)]
    several = train_alone(data, jobs)
    scores = np.zeros(len(data.pool), np.float32)
    outputs = np.zeros((len(data.pool), data.train.task.outputs), np.float32)
    for done, variant in zip(several, variants, strict=True):
        assert done.scores is not None
        assert done.outputs is not None
        scores[data.judged_rows(variant)] = done.scores
        outputs[data.judged_rows(variant)] = done.outputs
    whole = dataclasses.replace(
        several[0],
        number=number,
        score=float(scores.mean()),
        scores=scores,
        outputs=outputs,
        network=tuple(done.network for done in several),
    )
    kept = keep_trial(whole, recipe, variants)
    assert kept is not None
    return as_trial(whole, Job(number, recipe, number), {}, phase=phase), kept


@functools.cache
def _network() -> Any:
    return recipe_at().model.build((4,), 3, key=keys.from_seed(0))


def planted(number: int, score: float, loss: float = 0.0, **about: Any) -> Done:
    """A training that never was, with a small network that was never trained, another for each number."""
    network = jax.tree.map(lambda leaf: np.asarray(leaf) + np.float32(number) / 7, _network())
    scores = np.full(7, score, np.float32)
    return Done(number, "finished", score=score, loss=loss, scores=scores, network=network, **about)
