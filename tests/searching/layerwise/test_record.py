"""The record of Algorithm 1: its best network, measured as `fit` measures."""

import dataclasses

import numpy as np
import pytest

from gradwise import defaults
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import UnitRange
from gradwise.evaluation.trials.selection_bias import corrected_for_selection
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.records.data_read import SetSizes
from gradwise.records.score_scale import percent
from gradwise.runtime import keys
from gradwise.searching.layerwise.algorithm import layerwise
from gradwise.searching.layerwise.record import record_of, summarise_layerwise
from gradwise.specs.dataset import Classes, Dataset
from gradwise.training.stopping import Off


def test_the_chosen_score_is_corrected_for_being_the_best_of_several() -> None:
    """Labels that have nothing to do with the digits: nine in ten are wrong, whatever the best of six says."""
    from sklearn.datasets import load_digits

    targets = np.random.default_rng(3).integers(0, 10, 300)
    data = Dataset(load_digits().data[:300], targets, Classes(np.arange(10)))
    parts = {"optimiser": Sgd(learning_rate=0.1), "batches": Reshuffled(size=20), "stopping": Off(epochs=1.0)}
    level = dataclasses.replace(learner("denoising", 8), **parts)
    tuning = defaults.classification(scaler=UnitRange(together=True), model=Mlp(widths=(), dropout=0.0), **parts)
    rates = [dataclasses.replace(tuning, optimiser=Sgd(learning_rate=rate)) for rate in (0.01, 0.1, 0.3)]
    key = keys.from_seed(2)
    found = layerwise([[level, level]], rates, data, keep=2, key=key)
    assert found.tuned_scores.shape == (6, 60)
    tried = [one.score for one in found.trainings if one.level == 2]
    np.testing.assert_allclose(sorted(found.tuned_scores.mean(1)), sorted(tried), atol=1e-6)
    result = record_of(found, data, key=key)
    choice = result.evidence.layerwise.choice
    assert choice.score == min(tried)
    assert choice.of == 6
    whole = corrected_for_selection(found.tuned_scores)
    assert choice.corrected == pytest.approx(min(tried) + whole.optimism)
    assert choice.score < choice.corrected
    assert abs(choice.corrected - 0.9) < abs(choice.score - 0.9)
    (told,) = [finding.what for finding in result.findings if "best of 6 fine-tunings" in finding.what]
    assert percent(choice.score) in told
    assert f"expect about {percent(choice.corrected)}" in told
    assert (result.data.test_readings, result.data.judged_on) == (1, "valid")


@pytest.mark.slow
def test_the_best_network_is_measured_on_every_part_and_unlabelled_rows_serve_its_layers() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    targets = digits.target[:300].copy()
    targets[::3] = -1
    data = Dataset(digits.data[:300], targets, Classes(np.arange(10)))
    parts = {"optimiser": Sgd(learning_rate=0.1), "batches": Reshuffled(size=20), "stopping": Off(epochs=3.0)}
    level = dataclasses.replace(learner("denoising", 8), **parts)
    tuning = defaults.classification(scaler=UnitRange(together=True), model=Mlp(widths=(), dropout=0.0), **parts)
    key = keys.from_seed(1)
    found = layerwise([[level]], [tuning], data, keep=1, key=key)
    result = record_of(found, data, key=key)
    assert result.metrics["valid"]["error_rate"] == pytest.approx(found.best.score, abs=1e-6)
    assert result.data.rows == SetSizes(120, 40, 40)
    rows = found.parts["test"]
    assert rows is not None
    wrong = result.predictor.predict(rows.inputs).argmax(1) != rows.targets
    assert result.test == pytest.approx(wrong.mean())
    assert result.test_interval[0] <= result.test <= result.test_interval[1]
    assert result.recipe.model.mlp.widths == (8,)
    assert result.findings[0].what == "the best of 2 trainings has layers of 8 units."
    assert summarise_layerwise(found).widths == (((8,),), ((8,),))
    assert result.history["age_examples"][-1] == result.outcome.age_examples == 360
    told = summarise_layerwise(found)
    assert [one.level for one in told.trainings] == [1, 2]
    # The layer saw all 220 rows that may be learned from, labelled or not; the fine-tuning 120.
    assert [one.age_examples for one in told.trainings] == [660, 360]
