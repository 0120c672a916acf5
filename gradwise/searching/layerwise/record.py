"""Algorithm 1's result as a record: the best network evaluated on every set, and the whole run as plain values.

found = layerwise(levels, fine_tuning, dataset, keep=4, key=key)
record_of(found, dataset, key=key).test            # measured once, when all is chosen
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from ... import __version__
from ...evaluation.run_findings import describe_data, find_in_run
from ...evaluation.trials.selection_bias import corrected_for_selection
from ...pretraining.stack import Pretrained
from ...records.data_read import SetSizes
from ...records.evidence.fit_evidence import LayerwiseChoice, LayerwiseEvidence
from ...records.finding import Finding
from ...records.fit import Fit
from ...records.outcome import Outcome
from ...records.used_rows import UsedRows
from ...runtime import keys, machine_description
from ...specs.adapters import as_criterion
from ...specs.dataset import Dataset
from ...specs.recipe import Recipe
from ...training.final_measurement import measure_parts
from ...training.predictor import Predictor, fit_temperature, outputs_of
from ...training.prepare import is_trained_on, target_units
from ..running.evaluation_data import scale_of
from .algorithm import Configuration, Layerwise


def _widths(one: Configuration) -> tuple[int, ...]:
    """The units of each layer, bottom up."""
    return tuple(int(layer.weight.shape[0]) for layer in one.layers)


def _chosen(found: Layerwise) -> Finding:
    """The layers that were chosen, bottom up."""
    units = ", then ".join(map(str, _widths(found.best)))
    return Finding("note", f"the best of {len(found.trainings)} trainings has layers of {units} units.", row="E8")


def summarise_layerwise(found: Layerwise) -> LayerwiseEvidence:
    """The whole run: every training, and which configurations were kept at each level."""
    levels = (*found.by_level, found.kept)
    return LayerwiseEvidence(
        trainings=tuple(found.trainings),
        kept=tuple(tuple(tuple(one.numbers) for one in level) for level in levels),
        scores=tuple(tuple(one.score for one in level) for level in levels),
        widths=tuple(tuple(_widths(one) for one in level) for level in levels),
        probes=tuple(found.best.probes),
        choice=correct_choice(found),
    )


def correct_choice(found: Layerwise) -> LayerwiseChoice:
    """The best fine-tuning's score as it was chosen, and as it is to be expected on fresh examples (row E2).

    The levels below were chosen by the same rows, which adds a little optimism that this does not take off: what other
    layers would have become is not known.
    """
    told = LayerwiseChoice(found.best.score, len(found.tuned_scores))
    train, valid = found.parts["train"], found.parts["valid"]
    assert train is not None
    assert valid is not None
    if found.tuned_scores.shape[1] < 2 or is_trained_on(valid, train):
        return told
    whole = corrected_for_selection(found.tuned_scores)
    moved = found.best.score - whole.naive  # by the weights of examples, where they have any
    low, high = (max(0.0, end + moved) for end in whole.interval)
    return dataclasses.replace(
        told,
        corrected=found.best.score + whole.optimism,
        optimism=whole.optimism,
        corrected_interval=(low, high),
    )


def _find_choice(choice: LayerwiseChoice, recipe: Recipe, train: Dataset) -> tuple[Finding, ...]:
    if math.isnan(choice.corrected):
        return ()
    scale = scale_of(recipe, train)
    seen, fresh = (scale.say(value) for value in (choice.score, choice.corrected))
    what = f"the {scale.name}, {seen}, is the best of {choice.of} fine-tunings"
    more = "plus a little, since the layers were chosen on the same rows"
    return (Finding("note", f"{what}; expect about {fresh} on new data ({more}).", "E2"),)


def _history(one: Configuration, rows: int) -> dict[str, list[Any]]:
    """The curve of the fine-tuning as a run's history; what was not kept of it is not a number."""
    assert one.ended is not None
    assert one.fine_tuning is not None
    curve = one.ended.curve
    lowest, best = math.inf, []
    for score in curve["valid_score"]:
        best.append(score < lowest)
        lowest = min(lowest, score)
    unknown = [math.nan] * len(best)
    ages = [int(age) for age in curve["age_examples"]]
    return {
        "age_examples": ages,
        "updates": [age // one.fine_tuning.batches.size for age in ages],
        "train_loss": curve["train_loss"],
        "train_score": unknown,
        "valid_loss": curve["valid_loss"],
        "valid_score": curve["valid_score"],
        "best": best,
        "patience_examples": unknown,
        "learning_rate": unknown,
        "epoch": [age / rows for age in ages],
        "seconds": curve["seconds"],
    }


def record_of(found: Layerwise, dataset: Dataset, *, key: Key[Array, ""]) -> Fit:
    """The best configuration as `fit` would tell of it: measured on every part, the test set for the first time."""
    one = found.best
    assert one.fine_tuning is not None
    assert one.ended is not None
    train, valid = found.parts["train"], found.parts["valid"]
    assert train is not None
    assert valid is not None
    units = target_units(train)
    network = jax.tree.map(jnp.asarray, one.network)
    criterion = as_criterion(one.fine_tuning.criterion)
    temperature = 1.0
    if dataset.task.kind == "classes":
        temperature = fit_temperature(criterion, outputs_of(network, found.scaler.apply(valid.inputs)), valid.targets)
    predictor = Predictor(
        found.scaler, network, criterion, temperature, *units, dataset.task, dataset.columns, dataset.shape
    )
    metrics, evidence, ends, _ = measure_parts(predictor, {}, found.parts, found.metric)
    chosen = summarise_layerwise(found)
    mlp = dataclasses.replace(one.fine_tuning.model, widths=_widths(one))
    recipe = dataclasses.replace(one.fine_tuning, model=Pretrained(one.settings, mlp))
    history = _history(one, len(train))
    outcome = Outcome(one.ended.outcome, one.ended.age_examples)
    sizes = SetSizes(**{name: len(part or ()) for name, part in found.parts.items()})
    return Fit(
        recipe=recipe,
        outcome=outcome,
        task=dataset.task.kind,
        metric=found.metric,
        metrics=metrics,
        test_interval=ends,
        history=history,
        evidence=dataclasses.replace(evidence, layerwise=chosen),
        data=dataclasses.replace(
            describe_data(dataset, sizes, found.scaler, recipe),
            notes=tuple(train.notes),
            judged_on="train" if is_trained_on(valid, train) else "valid",
            test_readings=int(sizes.test > 0),
        ),
        findings=(
            _chosen(found),
            *find_in_run(dataclasses.replace(recipe, model=network), history, outcome, train),
            *_find_choice(chosen.choice, one.fine_tuning, train),
        ),
        seconds=found.seconds,
        seed=keys.seed_of(key),
        version=__version__,
        machine=machine_description.describe_machine(),
        predictor=predictor,
        used=UsedRows.of(train.inputs, valid.inputs),
    )
