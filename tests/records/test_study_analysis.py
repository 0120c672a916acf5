"""The analysis of a study is written as JSON and comes back equal, without the trials that answered a question."""

import json
import math

from gradwise import defaults
from gradwise.records.plain_values import from_values, to_values
from gradwise.records.study_analysis import (
    Advice,
    Analysis,
    BatchSizeCost,
    BatchSizes,
    Challenge,
    ComparedValue,
    Difference,
    PairedResult,
    PopulationHistory,
    RankCorrelation,
    SeedDistribution,
    ShortRuns,
)
from gradwise.records.trial import Trial

TRIAL = Trial(0, defaults.classification(), {}, "finished", score=0.1)
CHALLENGE = Challenge(
    "optimiser.learning_rate",
    0.1,
    (ComparedValue(0.1, (0.2, math.nan)), ComparedValue("8×8", (0.1, 0.3), {"model.dropout": 0.5})),
    (PairedResult("8×8", Difference(0.1, -0.1, 0.3, 2), "no significant difference"),),
    "no significant difference.",
    trials=(TRIAL,),
)
WHOLE = Analysis(
    Advice(True, "more trials are worth it.", 0.1, math.nan, 16),
    ("the best rate lies at the end of its range.",),
    ShortRuns((100,), (RankCorrelation(0.5, 0.1, 0.9, 8),), 300, "too uncertain.", False),
    BatchSizes((BatchSizeCost(8, 0.5, 100, True, 0.1),), 8, 0.1, 0.2, "it stays 8.", trial=3, trials=(TRIAL,)),
    (
        PopulationHistory(
            first=0,
            members=2,
            intervals=4,
            every=2,
            changing=("optimiser.learning_rate",),
            ages=(10, 20),
            scores=((0.1, math.nan), (0.2, 0.3)),
            parents=((0, 1), (0, 0)),
            knobs={"optimiser.learning_rate": ((0.1, 0.2), (0.1, 0.1))},
            lineage=(0, 0),
            best_score=0.1,
            copies=1,
        ),
    ),
    CHALLENGE,
    seeds=SeedDistribution((0.1, 0.2), 0.15, 0.07, {"0.5": 0.15}, {"diverged": 1}, "over 2 seeds.", (TRIAL,)),
)


def test_an_analysis_comes_back_equal() -> None:
    plain = json.loads(json.dumps(to_values(WHOLE), allow_nan=False))
    again = from_values(Analysis, plain)
    assert again == WHOLE
    assert again.challenge is not None
    assert again.challenge.trials == ()  # they are in the study's own table
    assert from_values(Analysis, to_values(Analysis())) == Analysis()


def test_scores_are_looked_up_by_value() -> None:
    assert CHALLENGE.scores["8×8"] == (0.1, 0.3)


def test_answers_are_the_sentences_of_questions() -> None:
    assert WHOLE.answers == ("no significant difference.", "over 2 seeds.", "it stays 8.")
    assert Analysis().answers == ()
