import itertools
import shlex

import pytest

from gradwise.journeys.requests.study_requests import SearchRequest
from gradwise.journeys.search_request import prepare_search
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.budget import Budget

DATA = {"data": "flowers.csv", "target": ["kind"]}


def test_a_request_is_read_into_space_plan_and_budget(table):
    words = {**DATA, "trials": "8", "seeds": "2", "committee": "inputs", "nested": False}
    found = prepare_search(
        SearchRequest.of({**words, "set": ["model.widths=8"], "range": ["batches.size=choice(16, 32)"]})
    )
    assert found.space.recipe.model.widths == (8,)
    assert "model.widths.each" not in found.space.paths
    assert "batches.size" in found.space.paths
    assert (found.plan.folds, found.plan.seeds, found.plan.committee) == (1, 2, "inputs")
    assert (found.budget, found.fold_budget, found.metric) == (Budget(trials=8), None, "error_rate")


def test_the_study_file_and_the_command_give_the_same_study_again(table, tmp_path):
    words = {**DATA, "trials": "8", "group": "bed", "metric": "log_loss", "nested": False}
    ranges = ["optimiser.learning_rate=log(1e-3, 1e-2)", "model.widths.each=integers(4, 8)"]
    first = prepare_search(SearchRequest.of({**words, "set": ["model.widths=8,8", "model.dropout=0"], "range": ranges}))
    assert {"model.widths.each", "optimiser.optimiser.learning_rate"} < set(first.space.paths)
    assert first.space.recipe.model.parametrisation == "ntk"  # a table has the recipe that `fit` takes
    (tmp_path / "again.toml").write_text(first.study_file)
    again = prepare_search(SearchRequest.of({"config": str(tmp_path / "again.toml")}))
    assert (again.space, again.plan, again.budget) == (first.space, first.plan, first.budget)
    assert again.options.settings() == first.options.settings()
    assert again.settings == first.settings
    typed = shlex.split(first.settings["command"])
    assert typed[:3] == ["gradwise", "search", "flowers.csv"]
    sets = [value for word, value in itertools.pairwise(typed) if word == "--set"]
    given = [value for word, value in itertools.pairwise(typed) if word == "--range"]
    assert prepare_search(SearchRequest.of({**words, "set": sets, "range": given})).space == first.space


def test_a_small_set_is_cross_validated_doubly_by_itself(table):
    words = {**DATA, "committee": "seeds"}
    found = prepare_search(SearchRequest.of({**words, "trials": "40"}))
    assert (found.budget, found.fold_budget) == (Budget(trials=40), Budget(trials=10))
    timed = prepare_search(SearchRequest.of({**words, "budget": "10min"}))
    assert (timed.budget.seconds, timed.fold_budget.seconds) == (pytest.approx(390), pytest.approx(42))
    short = prepare_search(SearchRequest.of({**words, "budget": "20s"}))  # too short to be shared out
    assert (short.budget, short.fold_budget) == (Budget(seconds=20), None)
    assert prepare_search(SearchRequest.of({**words, "trials": "40", "nested": False})).fold_budget is None
    # An ensemble has an honest estimate of its own.
    assert prepare_search(SearchRequest.of({**DATA, "trials": "40"})).fold_budget is None
    assert prepare_search(SearchRequest.of({**DATA, "trials": "40", "nested": True})).fold_budget is not None


def test_a_space_in_which_nothing_fits_is_refused(table):
    with pytest.raises(RequestError, match=r"no trial is possible: the network has .* parameters"):
        prepare_search(SearchRequest.of({**DATA, "range": ["model.widths.each=integers(1000000000, 2000000000)"]}))
    with pytest.raises(RequestError, match="no trial is possible: the loss GaussianLoss learns numbers"):
        prepare_search(SearchRequest.of({**DATA, "set": ["criterion.loss=GaussianLoss"]}))
