"""One training and one search of tiny networks, each written by every tracker at once."""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwise.records.fit import Fit
from gradwise.records.study import Study
from gradwise.runtime import keys
from gradwise.searching.running.population_size import Given
from gradwise.searching.search import SearchPlan, StudyOptions, run_study
from gradwise.searching.storage.budget import Budget
from gradwise.searching.strategies.random_search import Random
from gradwise.specs.dataset import Classes, Column, Dataset
from gradwise.specs.priors import LogUniform
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import Space, dimension
from gradwise.tracking.callbacks import call_back
from gradwise.tracking.mlflow_runs import MLflow
from gradwise.tracking.tensorboard_files import TensorBoard
from gradwise.tracking.tracker import AbstractTracker, Row, describe_recipe
from gradwise.tracking.wandb_runs import WandB
from gradwise.training.loop import RunOptions
from gradwise.training.stopping import Off
from gradwise.training.train import train
from tests.searching import small_study

KEY = keys.from_seed(0)
RATE = "optimiser.learning_rate"


def blobs(count: int = 120) -> Dataset:
    """Three clouds that overlap."""
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 3, count)
    inputs = draw.normal(size=(count, 4)) + targets[:, None]
    return Dataset(inputs, targets, Classes(np.array(["a", "b", "c"])), tuple(Column(f"c{n}") for n in range(4)))


BLOBS = blobs()
RECIPE: Recipe = dataclasses.replace(
    small_study.recipe_at(dataset=BLOBS), stopping=Off(epochs=4.0, spacing=1.0, least_examples=1)
)
SPACE = Space(RECIPE, (dimension(RECIPE, RATE, LogUniform(1e-2, 1.0)),))


def search_with(callbacks: Any, **options: Any) -> Study:
    """Three trials, whose rows go to callbacks."""
    with call_back(callbacks, describe_recipe(RECIPE)) as calls:
        study = run_study(
            SPACE,
            BLOBS,
            strategy=Random(),
            budget=Budget(trials=3),
            key=KEY,
            plan=SearchPlan(folds=1, finalists=0, refine=False, borders=False),
            options=StudyOptions(on="here", slots=Given(1), trial_ended=calls.trial_ended, **options),
        )
        calls.end(study)
    return study


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of one database for all runs: MLflow takes seconds to make one."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'runs.db'}"


def trackers(name: str, database: str) -> list[AbstractTracker]:
    """Every writer, into the working folder and the database."""
    return [TensorBoard("events"), MLflow(name, uri=database), WandB(name)]


@dataclasses.dataclass(frozen=True)
class Tracked:
    """A training or a search, its rows, and the folder that the trackers wrote into."""

    folder: Path
    record: Any
    rows: list[Row]


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[Path]:
    """A working folder, with what the packages themselves may do kept small: no usage reports, no old API's warning."""
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        patched.setitem(os.environ, "MLFLOW_DISABLE_TELEMETRY", "true")
        warnings.filterwarnings("ignore", r".*``noload`` loader strategy", DeprecationWarning)  # MLflow's own tables
        yield folder


@pytest.fixture(scope="session")
def tracked(tmp_path_factory: pytest.TempPathFactory, database: str) -> Tracked:
    rows: list[Row] = []
    with _working_in(tmp_path_factory.mktemp("tracked")) as folder:
        page = folder / "report.html"
        page.write_text("<p>The page of the run.</p>")
        with call_back([rows.append, *trackers("tracked", database)], {**describe_recipe(RECIPE), "seed": 0}) as calls:
            record: Fit = train(RECIPE, BLOBS, key=KEY, options=RunOptions(watch=calls.watch))
            calls.end(record, page)
    return Tracked(folder, record, rows)


@pytest.fixture(scope="session")
def tracked_search(tmp_path_factory: pytest.TempPathFactory, database: str) -> Tracked:
    rows: list[Row] = []
    with _working_in(tmp_path_factory.mktemp("searched")) as folder:
        study = search_with([rows.append, *trackers("searched", database)])
    return Tracked(folder, study, rows)


@pytest.fixture(scope="session")
def failed(tmp_path_factory: pytest.TempPathFactory, database: str) -> Path:
    """The folder of a training that an error ended after its first row."""
    with _working_in(tmp_path_factory.mktemp("failed")) as folder:

        def fail(_: Row) -> None:
            raise ValueError("out of luck")

        with (
            pytest.raises(RuntimeError, match="out of luck"),
            call_back([*trackers("failed", database), fail]) as calls,
        ):
            train(RECIPE, BLOBS, key=KEY, options=RunOptions(watch=calls.watch))
    return folder
