import pytest

from gradwise.journeys.requests.strategies import (
    LayerwisePlan,
    check_strategy,
    is_layerwise,
    parse_layerwise,
    parse_ranges,
    parse_strategy,
)
from gradwise.runtime.errors import RequestError
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


def test_the_words_of_the_plan() -> None:
    assert parse_layerwise("layerwise") == LayerwisePlan()
    assert parse_layerwise("layerwise(layers=denoising:4-16x2, keep=2, settings=2, tunings=2)") == LayerwisePlan(
        "denoising:4-16x2", 2, 2, 2
    )
    assert parse_layerwise("layerwise(keep=4, layers=rbm:9,plain:4-6, tunings=1)") == LayerwisePlan(
        "rbm:9,plain:4-6", keep=4, tunings=1
    )
    assert parse_ranges("rbm:9,plain:4-6x2") == ("rbm:9,plain:6x2", [None, (4, 6), (4, 6)])
    for words, said in [
        ("layerwise(kep=2)", "unknown setting `kep`"),
        ("layerwise(keep=0)", "at least 1"),
        ("layerwise(layers=denoising)", "invalid layer"),
        ("layerwise(layers=denoising:9-4x2)", "a range of units must increase"),
        ("layerwise(layers=denoising:4-x2)", "invalid layer"),
        ("layerwise2", "expected layerwise"),
    ]:
        with pytest.raises(RequestError, match=said):
            parse_layerwise(words)


def test_both_kinds_of_strategy_are_checked_by_their_own_rules():
    for words in ("random", "layerwise", " Layerwise(keep=2)"):
        check_strategy(words, "--strategy")
    assert [is_layerwise(words) for words in ("random", "layerwise", " Layerwise(keep=2)")] == [False, True, True]
    for words in ("gird", "layerwise(kep=2)"):
        with pytest.raises(RequestError, match="Did you mean"):
            check_strategy(words, "--strategy")
