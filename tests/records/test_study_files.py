"""Studies on disk: what is written comes back, any tool can read the table, and damage is one line."""

import dataclasses
import json
import math

import pyarrow.parquet as pq
import pytest

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.models.mlp import Mlp
from gradwise.records.data_read import DataRead, SetSizes
from gradwise.records.finding import Finding
from gradwise.records.study import Study
from gradwise.records.study_analysis import Advice, Analysis
from gradwise.records.study_conclusions import CommitteeSummary, CorrectedScore, Estimates, WeightedEstimate, Winner
from gradwise.records.study_files import COLUMNS, FILES, TEXTS, is_study, read_study, write_study
from gradwise.records.trial import Trial, trial_to_plain
from gradwise.runtime.errors import RequestError, WorkError
from gradwise.specs.priors import Choice, LogInteger, LogUniform, ZeroOr
from gradwise.specs.recipe import Recipe
from gradwise.specs.search_space import Space, dimension, label, space_to_plain
from gradwise.specs.serialisation import Unwritten

RATE = "optimiser.optimiser.learning_rate"


class Curved(Mlp):
    """A model of a user's own."""


def make_space(**parts):
    recipe = defaults.classification(**parts)
    priors = {
        "model.widths.count": Choice((1, 2)),
        "model.widths.1": LogInteger(4, 64),
        "model.activation": Choice((Tanh(), Rectifier())),
        "model.dropout": ZeroOr(LogUniform(0.01, 0.5)),
        RATE: LogUniform(1e-4, 1.0),
    }
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in priors.items()))


def make_trial(number, space, fraction, **changes):
    recipe = space.recipe_at(dict.fromkeys(space.paths, fraction))
    values = {path: label(value) for path, value in space.values(recipe).items()}
    curve = {"age_examples": [100.0, 200.0], "valid_score": [0.5, math.nan], "seconds": [0.1, 0.2]}
    given = {"score": 0.1 + fraction, "loss": 0.3, "age_examples": 200, "best_age": 100, "seconds": 1.5}
    return Trial(number, recipe, values, "patience", **{**given, "parameters": 77, "curve": curve, **changes})


@pytest.fixture
def study():
    space = make_space()
    bad = {"score": math.nan, "loss": math.nan, "curve": {}}
    return Study(
        task="classes",
        metric="error_rate",
        space=space.with_priors({RATE: LogUniform(1e-4, 10.0)}),
        asked=space,
        strategy="Random",
        independent=True,
        trials=(
            make_trial(0, space, 0.1),
            make_trial(1, space, 0.8, examples=500, continues=0, phase="refine"),
            dataclasses.replace(make_trial(2, space, 0.9, **bad), outcome="diverged"),
            dataclasses.replace(make_trial(3, space, 0.4, **bad), outcome="failed", reason='no "memory"\nleft'),
        ),
        settings={"data": "digits", "seed": 3},
        data=DataRead("digits", rows=SetSizes(100)),
        seed=3,
        seconds=12.5,
        version="0.2.0",
        machine={"device": "cpu: cpu"},
        outcome="interrupted",
        unit=2.0,
        winner=Winner(0, 0.2, {RATE: 0.1}, CorrectedScore(0.22, 0.02, (0.1, 0.3))),
        committee=CommitteeSummary("ensemble", 0, (0, 1), 3, 4, weights={0: 0.25, 1: 0.75}, last_gain=(0.1, 0.2)),
        estimates=Estimates({"test": {"error_rate": 0.21}}, 0.21, (0.1, 0.3), WeightedEstimate(0.2, 0.1, (1.0,))),
        analysis=Analysis(Advice(True, "go on.", 0.1, math.nan, 4), borders=("at the end",)),
        findings=(Finding("warning", "what", "E4", "next"),),
    )


def test_a_study_comes_back_as_it_was(study, tmp_path):
    write_study(study, tmp_path)
    found = read_study(tmp_path)
    assert [trial_to_plain(trial) for trial in found.trials] == [trial_to_plain(trial) for trial in study.trials]
    assert [trial.recipe for trial in found.trials] == [trial.recipe for trial in study.trials]
    assert math.isnan(found.chance)
    assert math.isnan(found.trials[2].score)
    assert math.isnan(found.trials[0].curve["valid_score"][1])
    same = {f.name for f in dataclasses.fields(Study)} - {"trials", "chance", "predictor"}
    assert {name: getattr(found, name) for name in same} == {name: getattr(study, name) for name in same}
    assert found.predictor is None
    assert found.summary() == study.summary()


def test_the_table_has_a_column_for_each_knob_that_any_tool_reads(study, tmp_path):
    write_study(study, tmp_path)
    table = pq.read_table(tmp_path / "trials.parquet").to_pandas()
    paths = dict.fromkeys(path for trial in study.trials for path in trial.values)
    assert list(table.columns) == [*COLUMNS, *paths, *TEXTS]
    assert table[RATE].dtype == "float64"
    assert table["model.widths.count"].tolist() == [trial.values["model.widths.count"] for trial in study.trials]
    second = [trial.values.get("model.widths.1") for trial in study.trials]
    assert second[0] is None  # one layer only, so there is no such knob
    assert [None if math.isnan(value) else value for value in table["model.widths.1"]] == second
    assert set(table["model.activation"]) == {"Tanh()", "Rectifier()"}


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, 0],
        [True, False, True],
        [True, 1, "one"],
        [None, 3, None],
        ["", "a", "None"],
        [2**60 + 1, 0.5, 1],
        [2**70, 1, 2],
        [1e-300, math.inf, -0.0],
    ],
)
def test_values_of_any_kind_come_back_equal(study, tmp_path, values):
    trials = [dataclasses.replace(study.trials[k], values={"model.x": value}) for k, value in enumerate(values)]
    trials.append(dataclasses.replace(study.trials[3], values={}))
    write_study(dataclasses.replace(study, trials=tuple(trials)), tmp_path)
    found = [trial.values for trial in read_study(tmp_path).trials]
    assert found == [*({"model.x": value} for value in values), {}]
    assert [type(value["model.x"]) is bool for value in found[:3]] == [type(value) is bool for value in values]


def test_a_study_without_trials_comes_back(study, tmp_path):
    write_study(dataclasses.replace(study, trials=()), tmp_path)
    assert read_study(tmp_path).trials == ()


def test_equal_studies_give_equal_files(study, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_study(study, tmp_path / name)
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in FILES)


def test_no_column_has_the_name_of_a_part():
    assert not {field.name for field in dataclasses.fields(Recipe)} & {*COLUMNS, *TEXTS}


def test_a_folder_says_whether_it_holds_a_study(study, tmp_path):
    assert not is_study(tmp_path)
    (tmp_path / "result.json").write_text('{"task": "classes"}')
    assert not is_study(tmp_path)
    (tmp_path / "result.json").write_text("[")
    assert not is_study(tmp_path)
    write_study(study, tmp_path)
    assert is_study(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(study, tmp_path, name):
    write_study(study, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RequestError, match=rf"is not the folder of a finished study: it has no {name}\.$"):
        read_study(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\x00\x01"])
def test_a_damaged_file_is_one_line(study, tmp_path, name, content):
    write_study(study, tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError) as told:
        read_study(tmp_path)
    assert "\n" not in str(told.value)
    assert str(tmp_path) in str(told.value)


def test_the_folder_of_a_run_is_no_study(study, tmp_path):
    write_study(study, tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**result, "kind": "poem"}))
    with pytest.raises(RequestError, match="contains a poem, not a study"):
        read_study(tmp_path)


def test_parts_of_the_users_own_are_passed_in_or_left_out(study, tmp_path):
    space = make_space(model=Curved())
    own = dataclasses.replace(study, space=space, asked=space, trials=(make_trial(0, space, 0.2),))
    write_study(own, tmp_path)
    assert read_study(tmp_path).trials[0].recipe.model == Unwritten(f"{Curved.__module__}:Curved")
    found = read_study(tmp_path, (Curved,))
    assert isinstance(found.trials[0].recipe.model, Curved)
    assert space_to_plain(found.space) == space_to_plain(space)


def test_a_recipe_of_another_class_is_refused(study, tmp_path):
    write_study(study, tmp_path)
    table = pq.read_table(tmp_path / "trials.parquet")
    texts = [text.replace("gradwise:Recipe", "gradwise:Mlp") for text in table["recipe"].to_pylist()]
    place = table.schema.get_field_index("recipe")
    pq.write_table(table.set_column(place, table.schema.field("recipe"), [texts]), tmp_path / "trials.parquet")
    with pytest.raises(RequestError, match="a trial without its recipe"):
        read_study(tmp_path)


def test_a_folder_that_cannot_be_written_is_said(study, tmp_path):
    with pytest.raises(WorkError, match=r"could not write .*study\.json: No such file or directory\.$"):
        write_study(study, tmp_path / "missing")
