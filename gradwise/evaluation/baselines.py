"""Simple models on the same training rows and the same test rows as the network: what it has to beat.

    baselines = compare_with_baselines(train, test, "error_rate", network_predictions)
    baselines[0].name, baselines[0].metrics["error_rate"], baselines[0].gain_interval

| baseline          | model                                   | left out                                     |
|-------------------|-----------------------------------------|----------------------------------------------|
| linear model      | logistic regression, ridge regression   | rows beyond what a second or two allow       |
| gradient boosting | histogram gradient boosting, 100 rounds | images, sparse rows, more than 2,000 inputs  |

Numbers are imputed and standardised, categories one-hot; trees get both as they are. Of texts the linear model reads
which words they have (TF-IDF), trees nothing; the name of a baseline says so. Rows and rounds are cut by the
size of the work, never by the clock, so that equal runs give equal records.

No choice hangs on what is found here, neither of the network nor of a knob: that is why it is no further reading of
the test set. It describes the number that was already read.
"""

import functools
import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..records.evidence.fit_evidence import Baseline
from ..runtime.memory import row_blocks
from ..specs.dataset import Dataset, Piece, Several, Task, is_labelled, text_places
from ..specs.sequences import as_rows
from .metrics import gain_interval, measure

Predict = Callable[[Any], np.ndarray]

LINEAR, BOOSTING = "linear model", "gradient boosting"
_OF_TEXTS = {LINEAR: " of word counts", BOOSTING: " without the text"}
SURE = 0.99  # two models are compared with the network, and few differences are worth a warning
_WORK_LINEAR = 1e8  # rows x inputs x outputs: about two seconds
_WORK_TREES = 2.0  # about so many seconds
_ROUNDS, _FEWEST_ROUNDS = 100, 30
_MOST_ROWS, _MOST_LINEAR_ROWS = 20_000, 50_000
_AT_ONCE = 2**21  # numbers of new rows that are looked at together
_WIDEST_TREES = 2000
_MOST_CATEGORIES = 255  # of a column, as trees take it


def _flat(inputs: Any) -> Any:
    """Inputs as a table of finite numbers and NaN, or a CSR matrix."""
    if hasattr(inputs, "tocsr"):
        return inputs
    flat = np.array(inputs, np.float64).reshape(len(inputs), -1)
    flat[~np.isfinite(flat)] = np.nan
    return flat


def _drawn(count: int, most: float) -> np.ndarray:
    """The rows to learn from: all, or a sample that is the same every time."""
    most = max(1, int(most))
    return np.arange(count) if count <= most else np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def _word_counts(codes: np.ndarray, words: int) -> Any:
    """How often each text has each word, as a sparse matrix; words that training does not have count together."""
    from scipy.sparse import csr_matrix

    rows, places = np.nonzero(~np.isnan(codes))
    found = np.minimum(codes[rows, places], words).astype(np.int32)
    return csr_matrix((np.ones(len(rows)), (rows, found)), shape=(len(codes), words + 1))


def _prepared(data: Dataset) -> Any:
    """What makes inputs fit for a linear model."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, StandardScaler

    if hasattr(data.inputs, "tocsr"):
        return MaxAbsScaler()
    width = math.prod(data.shape)
    codes = [k for k, column in enumerate(data.columns) if column.kind == "category"]
    texts = text_places(data.columns)
    apart = {*codes, *itertools.chain.from_iterable(texts.values())}
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore", max_categories=50)
    parts = [("numbers", numbers, sorted(set(range(width)) - apart)), ("categories", encoder, codes)]
    for name, own in texts.items():
        counts = functools.partial(_word_counts, words=len(data.columns[own[0]].categories))
        parts.append((f"text {name}", make_pipeline(FunctionTransformer(counts), TfidfTransformer()), own))
    return ColumnTransformer([part for part in parts if part[2]])


def _linear(classifies: bool) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge

    return LogisticRegression(max_iter=100) if classifies else Ridge(alpha=1.0)


def _rounds(data: Dataset, rows: int) -> int:
    """Rounds of boosting that the work allows: a tree costs a little for each input, and a little for each value."""
    width = math.prod(data.shape)
    each = width * 3e-5 + width * rows * 6e-9
    return int(min(_ROUNDS, _WORK_TREES / each / max(1, _trees(data.task))))


def _trees(task: Task) -> int:
    """Trees in each round."""
    return 1 if task.outputs == 2 and task.kind == "classes" else task.outputs


def _boosting(data: Dataset, rounds: int, classifies: bool) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    codes = [c.kind == "category" and len(c.categories) < _MOST_CATEGORIES for c in data.columns] or None
    learner = HistGradientBoostingClassifier if classifies else HistGradientBoostingRegressor
    return learner(max_iter=rounds, early_stopping=False, random_state=0, categorical_features=codes)


def _fitted(learner: Any, inputs: Any, targets: np.ndarray, weights: Any, width: int) -> Predict:
    """What gives predictions (n, width) for new inputs, after one learner of classes, or (n, 1) of numbers."""
    if width and len(np.unique(targets)) < 2:  # nothing to learn: always the same
        return lambda new: np.tile(np.eye(width)[int(targets[0])], (new.shape[0], 1))
    learner.fit(inputs, targets, sample_weight=weights)
    if not width:
        return lambda new: np.asarray(learner.predict(new)).reshape(-1, 1)

    def probabilities(new: Any) -> np.ndarray:
        found = np.zeros((new.shape[0], width))
        found[:, learner.classes_.astype(int)] = learner.predict_proba(new)
        return found

    return probabilities


def _learn_piece(make: Any, data: Dataset, piece: Piece, inputs: Any, weights: Any) -> Predict:
    """What predicts one of several targets, learned from the rows that have it."""
    targets = piece.of(data.targets)
    known = np.flatnonzero(is_labelled(targets, piece.task))
    some = replace(data.take(known), targets=targets[known], task=piece.task)
    return _learn(make, some, inputs[known], None if weights is None else weights[known])


def _learn(make: Any, data: Dataset, inputs: Any, weights: Any) -> Predict:
    """What predicts as the network does: `make(classifies)` gives a new learner."""
    task, targets = data.task, data.targets
    if task.kind == "classes":
        return _fitted(make(True), inputs, targets, weights, task.outputs)
    if task.kind == "labels":
        several = [_fitted(make(True), inputs, one, weights, 2) for one in (targets > 0.5).astype(int).T]
        return lambda new: np.hstack([predict(new)[:, 1:] for predict in several])
    if isinstance(task, Several):
        learned = [_learn_piece(make, data, piece, inputs, weights) for piece in task.pieces]
        return lambda new: np.hstack([predict(new) for predict in learned])
    each = [_fitted(make(False), inputs, one, weights, 0) for one in targets.T]
    return lambda new: np.hstack([predict(new) for predict in each])


def _predictions(predict: Predict, prepare: Predict, inputs: Any) -> np.ndarray:
    """Predictions for new rows, of which a few at a time are made into inputs."""
    if hasattr(inputs, "tocsr"):
        return predict(prepare(inputs))
    return np.concatenate([predict(prepare(_flat(rows))) for _, rows in row_blocks(inputs, _AT_ONCE)])


def _weighted(train: Dataset, by_class: np.ndarray | None) -> np.ndarray | None:
    if train.weights is None and by_class is None:
        return None
    weights = np.ones(len(train)) if train.weights is None else np.asarray(train.weights, np.float64)
    return weights if by_class is None else weights * by_class[train.targets]


def _linear_predictions(train: Dataset, test: Dataset, by_class: np.ndarray | None) -> tuple[np.ndarray, int]:
    width = train.inputs.nnz / len(train) if hasattr(train.inputs, "tocsr") else math.prod(train.shape)
    most = min(_WORK_LINEAR / max(1.0, width * train.task.outputs), _MOST_LINEAR_ROWS)
    some = train.take(_drawn(len(train), most))
    prepared = _prepared(some)
    predict = _learn(_linear, some, prepared.fit_transform(_flat(some.inputs)), _weighted(some, by_class))
    return _predictions(predict, prepared.transform, test.inputs), len(some)


def _of_columns(data: Dataset, kept: list[int]) -> Dataset:
    return replace(data, inputs=data.inputs[:, kept], columns=tuple(data.columns[place] for place in kept))


def _boosted_predictions(train: Dataset, test: Dataset, by_class: np.ndarray | None) -> tuple[np.ndarray, int] | None:
    """Nothing where trees are no match: of images and sparse rows, and where a few rounds would take too long."""
    is_image = len(train.shape) > 1 or any(column.kind == "pixel" for column in train.columns)
    if is_image or hasattr(train.inputs, "tocsr") or train.shape[0] > _WIDEST_TREES:
        return None
    kept = [place for place, column in enumerate(train.columns) if column.kind != "text"]
    if train.columns and not kept:
        return None
    if len(kept) < len(train.columns):
        train, test = (_of_columns(part, kept) for part in (train, test))
    some = train.take(_drawn(len(train), _MOST_ROWS))
    rounds = _rounds(some, len(some))
    if rounds < _FEWEST_ROUNDS:
        return None
    inputs = _flat(some.inputs)
    empty = np.isnan(inputs).all(axis=0)  # of these rows: nothing to split by, which binning does not take

    def prepare(new: Any) -> np.ndarray:
        return np.where(empty, 0.0, new)

    make = functools.partial(_boosting, some, rounds)
    return _predictions(_learn(make, some, prepare(inputs), _weighted(some, by_class)), prepare, test.inputs), len(some)


def compare_with_baselines(
    train: Dataset, test: Dataset, metric: str, predictions: np.ndarray, by_class: np.ndarray | None = None
) -> tuple[Baseline, ...]:
    """The baselines, learned on these training rows and measured on the test rows, beside the network's predictions.

    `by_class` are the weights of the classes in training.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    known = np.flatnonzero(train.labelled)
    train = train if len(known) == len(train) else train.take(known)
    train, test = (replace(part, inputs=as_rows(part.inputs), test=None) for part in (train, test))
    baselines = []
    # One thread: the work is small, and threads that wait for one another took ten times as long on a busy machine.
    with threadpool_limits(1), warnings.catch_warnings():
        for kind in (ConvergenceWarning, RuntimeWarning):  # of models that nobody asked for
            warnings.simplefilter("ignore", kind)
        for name, learned in ((LINEAR, _linear_predictions), (BOOSTING, _boosted_predictions)):
            try:
                found = learned(train, test, by_class)
            except ValueError:  # values beyond what scikit-learn takes: the network is trained, and stands alone
                found = None
            if found is None:
                continue
            theirs, rows = found
            baselines.append(
                Baseline(
                    name + (_OF_TEXTS[name] if text_places(train.columns) else ""),
                    measure(test.task, theirs, test.targets, test.weights),
                    rows,
                    gain_interval(metric, test.task, predictions, theirs, test.targets, test.weights, level=SURE),
                )
            )
    return tuple(baselines)
