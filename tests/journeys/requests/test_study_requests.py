import dataclasses
import shlex

import pytest

from gradwise.journeys.requests.study_requests import ChallengeRequest, CompareRequest, SearchRequest, SeedsRequest
from gradwise.runtime.errors import RequestError
from gradwise.searching.search import SearchPlan
from gradwise.searching.storage.budget import Budget
from gradwise.searching.storage.study_definition import write_study_file


def test_trials_are_a_budget():
    assert SearchRequest.of({"data": "iris", "trials": "8"}).budget == Budget(trials=8)
    more = SearchRequest.of({"data": "iris", "trials": "+8", "resume": True, "out": "x"}).budget
    assert more == Budget(trials=8, more=True)
    assert SearchRequest.of({"data": "iris"}).budget == Budget(seconds=600)


def test_a_study_file_gives_the_request_back(tmp_path):
    file = tmp_path / "study.toml"
    options = SearchRequest(
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
    read = SearchRequest.of({"config": str(file)})
    assert read == dataclasses.replace(options, config=str(file), ranges=ranges, recipe=recipe)


def test_the_command_line_wins_over_the_study_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('[search]\ndata = "iris"\nbudget = "32 trials"\nseed = 3\nnested = true\n')
    given = {"data": "wine", "budget": "1min", "nested": False, "config": str(file)}
    more = {"set": ["model.widths=8"], "range": ["model.dropout=uniform(0, 0.5)"]}
    options = SearchRequest.of({**given, **more})
    assert (options.data, options.budget, options.seed, options.nested) == ("wine", Budget(seconds=60), 3, False)
    assert options.set == {"model.widths": "8"}
    assert options.range == {"model.dropout": "uniform(0, 0.5)"}
    assert SearchRequest.of({"config": str(file), "trials": "5"}).budget == Budget(trials=5)


def test_a_folder_that_goes_on_says_itself_with_what(tmp_path):
    (tmp_path / "study.toml").write_text('[search]\ndata = "iris"\nbudget = "32 trials"\nseed = 3\n')
    options = SearchRequest.of({"out": str(tmp_path), "resume": True})
    assert (options.data, options.budget, options.seed) == ("iris", Budget(trials=32), 3)


def test_the_command_repeats_the_study():
    options = SearchRequest(data="a b.csv", budget=Budget(trials=4), nested=False, finalists=0, batch_size="auto")
    line = options.command(("model.widths=8",), {"model.dropout": "uniform(0, 0.5)"})
    assert shlex.split(line) == [
        *("gradwise", "search", "a b.csv", "--seed", "0", "--budget", "4 trials", "--finalists", "0", "--no-nested"),
        *("--batch-size", "auto", "--set", "model.widths=8", "--range", "model.dropout=uniform(0, 0.5)"),
    ]
    words = {"data": "a b.csv", "budget": "4 trials", "finalists": "0", "nested": False, "batch_size": "Auto"}
    assert SearchRequest.of(words) == options


def test_a_batch_size_of_ones_own_sets_the_knob(tmp_path):
    request = SearchRequest.of({"data": "iris", "batch_size": "64"})
    assert (request.batch_size, request.set, request.recipe) == (None, {"batches.size": "64"}, {})
    file = tmp_path / "study.toml"
    file.write_text('[search]\ndata = "iris"\nbatch_size = 32\n')
    request = SearchRequest.of({"config": str(file)})
    assert (request.batch_size, request.set, request.recipe) == (None, {}, {"batches.size": 32})


@pytest.mark.parametrize("size", ["0", "-3", "2.5", "large", "1e3", ""])
def test_a_batch_size_that_is_none_is_refused_with_what_to_write(size):
    with pytest.raises(RequestError, match=r"--batch-size .*: expected a whole number of at least 1, or auto"):
        SearchRequest.of({"data": "iris", "batch_size": size})


@pytest.mark.parametrize(
    ("given", "sets", "ranges", "said"),
    [
        ({"batch_size": "64"}, ["batches.size=32"], [], "is given twice, once as --batch-size 64"),
        ({"batch_size": "64"}, [], ["batches.size=choice(16, 32)"], "is given twice, once as --batch-size 64"),
    ],
)
def test_a_batch_size_that_is_given_twice_is_refused(given, sets, ranges, said):
    with pytest.raises(RequestError, match=said):
        SearchRequest.of({"data": "iris", **given, "set": sets, "range": ranges})


def test_the_defaults_are_those_of_the_plan():
    request, plan = SearchRequest(data="iris"), SearchPlan()
    assert (request.finalists, request.seeds) == (plan.finalists, plan.seeds)
    assert SearchRequest.options()["committee"].shown == plan.committee


def test_a_question_repeats_itself_and_is_not_limited_by_itself():
    request = ChallengeRequest.of({"data": "iris", "knob": "model.dropout=0,0.5", "seeds": "3"})
    assert shlex.split(request.command(("model.widths=8",))) == [
        *("gradwise", "challenge", "iris", "model.dropout=0,0.5", "--seed", "0", "--seeds", "3"),
        *("--set", "model.widths=8"),
    ]
    assert str(request.budget) == "no limit"
    assert (
        ChallengeRequest(data="iris").seeds,
        CompareRequest(data="iris").seeds,
        SeedsRequest(data="iris").seeds,
    ) == (*(10, 5, 30),)
    limited = CompareRequest.of({"data": "iris", "knob": "model.dropout=0,0.5", "budget": "10min"})
    assert limited.budget == Budget(seconds=600)
    assert "--budget 10min" in limited.command()
    with pytest.raises(RequestError, match="--trials and --budget exclude each other"):
        CompareRequest.of({"data": "iris", "knob": "a=1,2", "budget": "10min", "trials": "8"})
