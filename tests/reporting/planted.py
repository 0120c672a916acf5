"""Studies of planted functions: real spaces, recipes and outcomes, and scores from a formula, so nothing is trained.

The error falls towards a learning rate of 0.3, beyond the interval first asked for; rates above 3 diverge. Width
matters a little, the activation somewhat, dropout not at all. The third layer's width exists only where there is one.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from gradwise import defaults
from gradwise.models.activations import Rectifier, Tanh
from gradwise.records.data_read import ColumnRead, DataRead, SetSizes
from gradwise.records.finding import Finding
from gradwise.records.study import Study
from gradwise.records.study_analysis import (
    Advice,
    Analysis,
    BatchSizeCost,
    BatchSizes,
    RankCorrelation,
    SeedDistribution,
    ShortRuns,
)
from gradwise.records.study_conclusions import (
    CommitteeSummary,
    CorrectedScore,
    Estimates,
    Finalist,
    WeightedEstimate,
    Winner,
)
from gradwise.records.trial import Trial, best_of
from gradwise.specs.priors import Choice, LogInteger, LogUniform, Uniform, ZeroOr
from gradwise.specs.search_space import Space, dimension, label

RATE = "optimiser.optimiser.learning_rate"
PRIORS: dict[str, Any] = {
    "model.widths.count": Choice((1, 2, 3)),
    "model.widths.each": LogInteger(16, 512),
    "model.widths.2": LogInteger(16, 256),
    "model.activation": Choice((Tanh(), Rectifier())),
    "model.dropout": ZeroOr(Uniform(0.0, 0.8)),
    RATE: LogUniform(1e-4, 10.0),
}
MACHINE = {"device": "cpu: cpu", "cores": 2, "jax": "0.10.0", "python": "3.11.7", "date": "2025-11-15 09:30 UTC"}


def make_space(recipe: Any = None) -> Space:
    recipe = recipe or defaults.classification()
    return Space(recipe, tuple(dimension(recipe, path, prior) for path, prior in PRIORS.items()))


def _error(values: dict[str, Any], noise: float) -> float:
    """The planted function: a parabola in the logarithm of the rate, a little of everything else."""
    rate = (math.log10(values[RATE]) - math.log10(0.3)) ** 2
    width = 0.02 * (math.log2(512) - math.log2(values["model.widths.each"])) / 5
    activation = 0.015 if "Tanh" in str(values["model.activation"]) else 0.0
    return min(0.9, 0.018 + 0.035 * rate + width + activation + 0.004 * abs(noise))


def make_trial(number: int, space: Space, draw: np.random.Generator, *, squared: bool = False) -> Trial:
    recipe = space.recipe_at({path: float(draw.random()) for path in space.paths})
    values = {path: label(value) for path, value in space.values(recipe).items()}
    width = int(values["model.widths.each"])
    seconds = 0.4 + width / 80 * float(draw.uniform(0.7, 1.3))
    common = {"parameters": 650 + 75 * width, "seconds": seconds}
    if values[RATE] > 3.0:
        return Trial(number, recipe, values, "diverged", age_examples=640, reason="", **common)
    if draw.random() < 0.04:
        return Trial(number, recipe, values, "failed", reason="the data could not be placed: no memory left", **common)
    score = _error(values, float(draw.normal()))
    age = int(draw.integers(8, 40)) * 1079
    ages = np.linspace(1079, age, 14)
    curve = score + (0.9 - score) * np.exp(-5 * ages / age) + 0.002 * np.abs(draw.normal(size=14))
    curve[-4] = score
    if squared:
        score, curve = 10 * score**2, 10 * curve**2
    columns = {"age_examples": ages.tolist(), "valid_score": curve.tolist(), "seconds": (seconds * ages / age).tolist()}
    ending = {"score": score, "loss": 3 * score, "age_examples": age, "best_age": int(ages[-4]), "curve": columns}
    return Trial(number, recipe, values, "patience", **ending, **common)


def make_study(count: int = 60, *, numbers: bool = False, concluded: bool = True) -> Study:
    """A study of so many random trials, with everything that a search concludes."""
    space = make_space(defaults.regression() if numbers else None)
    asked = space.with_priors({RATE: LogUniform(1e-4, 0.1)})
    draw = np.random.default_rng(0)
    trials = tuple(make_trial(number, space, draw, squared=numbers) for number in range(count))
    found = Study(
        task="numbers" if numbers else "classes",
        metric="rmse" if numbers else "error_rate",
        space=space,
        asked=asked,
        strategy="Random",
        independent=True,
        trials=trials,
        settings={
            "data": "digits",
            "target": "class",
            "strategy": "random",
            "budget": f"{count} trials",
            "seed": 7,
            "command": f"gradwise search digits --trials {count} --seed 7",
            "study_file": f'data = "digits"\nstrategy = "random"\nbudget = "{count} trials"\nseed = 7\n',
        },
        data=DataRead(
            name="digits",
            rows=SetSizes(1079, 359, 359),
            split="HoldOut",
            columns=tuple(ColumnRead(f"pixel_{k}", "pixel") for k in range(64)),
            shape=(64,),
        ),
        seed=7,
        seconds=187.0,
        version="0.2.0",
        machine=MACHINE,
        unit=53.0 if numbers else 1.0,
        chance=1.0 if numbers else 0.9,
    )
    best = best_of(trials)
    return conclude(found, best) if concluded and best else found


def conclude(study: Study, best: Trial) -> Study:
    """What a search would conclude, around the score of the best trial."""
    draw, score = np.random.default_rng(1), best.score
    shown = study.scale.shown(score)
    order = sorted((t for t in study.trials if t.ok), key=lambda t: t.score)[:4]
    finalists = tuple(
        Finalist(
            trial.number,
            trial.values,
            tuple((trial.score * (1.08 + 0.06 * draw.normal(size=8))).tolist()),
            trial.score * 1.08,
            trial.score * 0.06,
        )
        for trial in order
    )
    members = (shown * (1.22 + 0.09 * draw.normal(size=5))).tolist()
    test = min(members) * 0.93
    named = {"train": shown * 0.3, "valid": shown * 1.02, "test": test}
    kinds = ("rmse", "r2") if study.task == "numbers" else ("error_rate", "log_loss")
    sizes = (16, 32, 64, 128, 256, 512)
    costs = (BatchSizeCost(s, 2.0 + 60 / s + s / 90, 20_000 + 90 * s, s < 512, 0.1) for s in sizes)
    values, low, high = (0.31, 0.55, 0.74, 0.88, 0.97), (0.1, 0.35, 0.6, 0.8, 0.95), (0.5, 0.7, 0.83, 0.93, 0.99)
    seeds = tuple((score * (1.1 + 0.08 * draw.normal(size=200))).tolist())
    corrected = CorrectedScore(score * 1.18, score * 0.18, (score * 0.85, score * 1.6))
    return dataclasses.replace(
        study,
        winner=Winner(best.number, score, best.values, corrected),
        committee=CommitteeSummary(
            "seeds", best.number, (), 5, len(study.trials), finalists, member_tests=tuple(members)
        ),
        estimates=Estimates(
            {part: {kinds[0]: value, kinds[1]: 0.08} for part, value in named.items()},
            test,
            (test * 0.6, test * 1.6),
            WeightedEstimate(score * 1.3, score * 0.2, (1 / 9,) * 9),
        ),
        analysis=Analysis(
            Advice(False, "more trials are hardly worth it: doubling may gain 0.1 %.", 0.001, 0.01, 60),
            (f"the best `{RATE}` lay at the upper end of its interval, so it was extended to 10.",),
            ShortRuns(
                (1079, 2158, 4316, 8632, 17264),
                tuple(RankCorrelation(*ends, 60) for ends in zip(values, low, high, strict=True)),
                20_000,
                "runs of a third of the length rank 60 trials like full runs, with a correlation of 0.74.",
                False,
            ),
            BatchSizes(tuple(costs), 64, 0.1, 0.03, "a batch of 64 reached 3 % soonest, in 3.6 s."),
            seeds=SeedDistribution(seeds, float(np.mean(seeds)), float(np.std(seeds)), {}, {}, "over 200 seeds."),
        ),
        findings=(
            Finding("note", "3 of 60 trials failed.", "E4", "see their reasons in the report."),
            Finding("warning", f"the best `{RATE}` lies near the end of its interval.", "E4", "extend it."),
        ),
    )


def all_diverged() -> Study:
    """Every rate was far too large."""
    space = make_space()
    high = space.with_priors({RATE: LogUniform(5.0, 500.0)})
    draw = np.random.default_rng(2)
    trials = tuple(make_trial(number, high, draw) for number in range(12))
    return dataclasses.replace(
        make_study(0), space=high, asked=high, trials=tuple(dataclasses.replace(t, outcome="diverged") for t in trials)
    )
