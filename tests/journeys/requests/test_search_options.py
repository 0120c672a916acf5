import shlex

import pytest

from gradwise.journeys.requests.search_options import SearchOptions, parse_range, parse_strategy, read_request
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.study_definition import Budget, write_study_file
from gradwise.searching.strategies.coarse_to_fine import CoarseToFine
from gradwise.searching.strategies.grid import Grid
from gradwise.searching.strategies.model_based import ModelBased
from gradwise.searching.strategies.optuna_sampler import OptunaSampler
from gradwise.searching.strategies.random_search import Random
from gradwise.searching.strategies.successive_halving import SuccessiveHalving


def test_strategies_by_their_words():
    assert parse_strategy("random") == Random()
    assert parse_strategy("Grid(values=3, most_cells=50)") == Grid(values=3, most_cells=50)
    counted = Grid(values=2, counts=(("learning_rate", 5), ("model.dropout", 3)))
    assert parse_strategy("grid(values=2, counts=(learning_rate=5, model.dropout = 3))") == counted
    assert parse_strategy("zoom(shrink=0.25,quasi=false)") == CoarseToFine(shrink=0.25, quasi=False)
    assert parse_strategy("halving(random_layers=true)") == SuccessiveHalving(random_layers=True)
    assert parse_strategy("cmaes") == OptunaSampler(sampler="cmaes")
    assert parse_strategy("forest") == ModelBased("forest")
    assert parse_strategy("gp(startup=4, interleave=0)") == ModelBased("gp", startup=4, interleave=0.0)
    assert parse_strategy("QMCSampler") == OptunaSampler(sampler="QMCSampler")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("gird", "Did you mean 'grid'?"),
        ("grid(valeus=3)", "Did you mean 'values'?"),
        ("grid(values=many)", "expected a number for `values`; got 'many'"),
        ("grid(values=-1)", "[0, inf)"),
        ("grid(counts=3)", "expected counts=(learning_rate=5, dropout=3)"),
        ("grid(counts=(dropout=few))", "expected counts=(learning_rate=5, dropout=3)"),
        ("grid(counts=(dropout=0))", "of `dropout` must be a whole number of at least 1; got 0"),
        ("grids(counts=(dropout=3))", "unknown setting `counts`"),
        ("grid(values=3", "unknown strategy"),
        ("", "unknown strategy"),
    ],
)
def test_other_strategies_are_refused(words, says):
    with pytest.raises(RequestError) as caught:
        parse_strategy(words)
    assert says in str(caught.value)


def test_a_range_is_a_path_and_a_text():
    assert parse_range(" a.b = log(1e-3, 1) ") == ("a.b", "log(1e-3, 1)")
    for words in ("a.b", "=log(1, 2)", "a.b="):
        with pytest.raises(RequestError, match="path=range"):
            parse_range(words)


def test_trials_are_a_budget():
    assert read_request({"data": "iris", "trials": "8"}, None, [], []).options.budget == Budget(trials=8)
    more = read_request({"data": "iris", "trials": "+8", "resume": True, "out": "x"}, None, [], []).options.budget
    assert more == Budget(trials=8, more=True)
    assert read_request({"data": "iris"}, None, [], []).options.budget == Budget(seconds=600)


def test_a_study_file_gives_the_request_back(tmp_path):
    file = tmp_path / "study.toml"
    options = SearchOptions(
        data="my data.csv",
        target=("y", "z"),
        kind={"zip": "category"},
        class_weight={"a": 1.0},
        budget=Budget(trials=32),
        strategy="grid(values=3)",
        folds=3,
        finalists=0,
        nested=False,
        seed=7,
        merged=({"seed": 7, "offset": 0}, {"seed": 8, "offset": 40}),
    )
    ranges, recipe = {"model.dropout": "uniform(0, 0.5)"}, {"model.widths": [8, 8]}
    file.write_text(write_study_file({**options.settings(), "ranges": ranges, "recipe": recipe}))
    asked = read_request({}, str(file), [], [])
    assert asked.options == options
    assert asked.ranges == ranges
    assert [(item.path, item.value) for item in asked.recipe] == [("model.widths", [8, 8])]


def test_the_command_line_wins_over_the_study_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('[search]\ndata = "iris"\nbudget = "32 trials"\nseed = 3\nnested = true\n')
    given = {"data": "wine", "budget": "1min", "nested": False, "seed": None}
    asked = read_request(given, str(file), ["model.widths=8"], ["model.dropout=uniform(0, 0.5)"])
    options = asked.options
    assert (options.data, options.budget, options.seed, options.nested) == ("wine", Budget(seconds=60), 3, False)
    assert asked.sets[0].path == "model.widths"
    assert asked.more_ranges == {"model.dropout": "uniform(0, 0.5)"}


def test_a_folder_that_goes_on_says_itself_with_what(tmp_path):
    (tmp_path / "study.toml").write_text('[search]\ndata = "iris"\nbudget = "32 trials"\nseed = 3\n')
    options = read_request({"out": str(tmp_path), "resume": True}, None, [], []).options
    assert (options.data, options.budget, options.seed) == ("iris", Budget(trials=32), 3)


def test_the_command_repeats_the_study():
    options = SearchOptions(data="a b.csv", budget=Budget(trials=4), nested=False, finalists=0, batch_size="auto")
    line = options.command(("model.widths=8",), {"model.dropout": "uniform(0, 0.5)"})
    assert shlex.split(line) == [
        *("gradwise", "search", "a b.csv", "--budget", "4 trials", "--finalists", "0", "--no-nested"),
        *("--batch-size", "auto", "--seed", "0", "--set", "model.widths=8", "--range", "model.dropout=uniform(0, 0.5)"),
    ]
    words = {"data": "a b.csv", "budget": "4 trials", "finalists": "0", "nested": False, "batch_size": "Auto"}
    assert read_request(words, None, [], []).options == options


def test_a_batch_size_of_ones_own_sets_the_knob(tmp_path):
    asked = read_request({"data": "iris", "batch_size": "64"}, None, [], [])
    assert asked.options.batch_size is None
    assert [(item.path, item.value) for item in asked.sets] == [("batches.size", 64)]
    file = tmp_path / "study.toml"
    file.write_text('[search]\ndata = "iris"\nbatch_size = 32\n')
    assert [(item.path, item.value) for item in read_request({}, str(file), [], []).recipe] == [("batches.size", 32)]


@pytest.mark.parametrize("size", ["0", "-3", "2.5", "large", "1e3", ""])
def test_a_batch_size_that_is_none_is_refused_with_what_to_write(size):
    with pytest.raises(RequestError, match=r"--batch-size .*: expected a whole number of at least 1, or auto"):
        read_request({"data": "iris", "batch_size": size}, None, [], [])


@pytest.mark.parametrize(
    ("given", "sets", "ranges", "said"),
    [
        ({"batch_size": "64"}, ["batches.size=32"], [], "is given twice, once as --batch-size 64"),
        ({"batch_size": "64"}, [], ["batches.size=choice(16, 32)"], "is given twice, once as --batch-size 64"),
    ],
)
def test_a_batch_size_that_is_given_twice_is_refused(given, sets, ranges, said):
    with pytest.raises(RequestError, match=said):
        read_request({"data": "iris", **given}, None, sets, ranges)
