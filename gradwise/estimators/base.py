"""What the estimators share: scikit-learn's contract around one call of `fit`, or of `search` (`auto.py`).

    Classifier(optimiser=Sgd(learning_rate=0.03)).fit(X, y).predict(X)
    GridSearchCV(Classifier(), {"optimiser__learning_rate": [0.01, 0.025], "model__widths": [(128,) * 3, (256,) * 3]})

A part that is `None` is the recommended one of `gradwise.defaults`. Inputs are arrays, CSR matrices or pandas frames.
An array (n, h, w) or (n, h, w, c) holds images, as does one of bytes (n, 64 or more), and gets the scaler of pixels;
a frame with strings, categories or dates is encoded like a table file, with the schema seen in `fit`.
"""

import abc
import math
import numbers
import warnings
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from .. import defaults
from ..curvature.objective import Examples
from ..data.splits import HoldOut, join_parts
from ..evaluation.metrics import check_metric
from ..journeys.data_and_recipe import Description
from ..journeys.fit import fit_recipe
from ..records.evidence.example_record import examples_frame
from ..records.fit import Fit
from ..records.used_rows import UsedRows
from ..runtime import keys
from ..runtime.errors import RequestError, nearest
from ..runtime.progress import silent
from ..specs.contracts import AbstractCriterion, AbstractSplit
from ..specs.dataset import FEW_ROWS, Column, Dataset, Task
from ..specs.recipe import Recipe
from ..training.loop import RunOptions
from ..training.predictor import AbstractPredictor
from ..training.state import init, lasts_a_run
from . import nested_parameters
from .partial_fit import one_pass

SLOTS = ("model", "optimiser", "batches", "criterion", "scaler", "stopping")


class TrainingRows(AbstractSplit):
    """Trains and validates on all rows: for very few rows, or if nothing may be held out."""

    def __call__(self, dataset: Dataset, *, key: Key[Array, ""]) -> Any:
        return dataset, dataset, None


def _is_mixed_frame(inputs: Any) -> bool:
    """Whether this is a pandas frame with columns that are not numeric."""
    if not (hasattr(inputs, "dtypes") and hasattr(inputs, "columns") and type(inputs).__module__.startswith("pandas")):
        return False
    from pandas.api.types import is_numeric_dtype

    return not all(is_numeric_dtype(dtype) for dtype in inputs.dtypes)


def _dimensions(inputs: Any) -> int:
    return int(inputs.ndim if hasattr(inputs, "ndim") else np.asarray(inputs).ndim)


def _print_line(line: dict[str, Any]) -> None:
    print(
        f"age {line['age_examples']:,} examples: training loss {line['train_loss']:.4g}, "
        f"validation loss {line['valid_loss']:.4g}, validation score {line['valid_score']:.4g}"
        + (" (kept)" if line["best"] else "")
    )


def _check_same_network(record: Fit, recipe: Recipe, dataset: Dataset) -> None:
    """Raise an error if the recipe no longer fits the parameters or optimiser state to continue from."""
    task = dataset.task
    scaled = record.predictor.scaler.apply(dataset.inputs[:1])
    layout = record.predictor.layout(scaled.shape[1:])
    one = Examples(jnp.asarray(scaled), jnp.zeros(1, jnp.int32), layout=layout)
    _, state = eqx.filter_eval_shape(init, recipe, one, one, outputs=task.outputs, key=keys.from_seed(0))

    def outline(tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        return structure, [np.shape(leaf) for leaf in leaves]

    for part, new, old in (
        ("model", state.parameters, record.state.parameters),
        ("optimiser", state.optimiser, record.state.optimiser),
    ):
        if outline(new) != outline(old):
            raise RequestError(
                f"`{part}` has changed so much that training cannot go on from the present network. "
                "Use `warm_start=False` and `fit`, or set it back."
            )


class Estimator(BaseEstimator, abc.ABC):
    """What all estimators share: reading rows and targets, and predictions in scikit-learn's form."""

    validation_fraction: float
    metric: str | None
    class_weight: Any = None
    criterion: Any = None
    verbose: bool | int
    random_state: Any

    # What a subclass says of its targets, and of what it trained.

    @abc.abstractmethod
    def _check_targets(self, y: Any) -> np.ndarray:
        """Targets as an array, without missing values unless `_takes_unlabelled`."""

    @abc.abstractmethod
    def _learn_task(self, targets: np.ndarray) -> Task:
        """The task that these targets set."""

    @abc.abstractmethod
    def _encode_targets(self, targets: np.ndarray, task: Task) -> np.ndarray:
        """Targets as `Dataset` expects them."""

    @abc.abstractmethod
    def _trained(self) -> AbstractPredictor:
        """The predictor."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True  # filled in, with an input that says where
        return tags

    # Data.

    def _takes_unlabelled(self) -> bool:
        """Whether rows without a target are learned from: y is -1 for a class, NaN for a number."""
        return isinstance(self.criterion, AbstractCriterion) and self.criterion.learns_from == "both"

    def _read_inputs(self, X: Any, *, first: bool) -> tuple[Any, tuple[Column, ...]]:
        """Inputs as `Dataset` expects them, with their columns if they have names. `first` learns the schema."""
        if first:
            self._schema: tuple[Column, ...] | None = () if _is_mixed_frame(X) else None
            self._image_shape = np.asarray(X).shape[1:] if self._schema is None and _dimensions(X) > 2 else ()
        if self._image_shape:
            return self._read_images(X, first=first), ()
        if self._schema is None:
            inputs = validate_data(
                self, X, reset=first, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan"
            )
            if hasattr(inputs, "toarray") or not hasattr(self, "feature_names_in_"):
                return inputs, ()
            return inputs, tuple(Column(name) for name in self.feature_names_in_)
        from ..data.reading.tables import blank_warning, from_frame

        validate_data(self, X, reset=first, skip_check_array=True)
        if not hasattr(X, "iloc"):
            raise RequestError("training saw a frame with named columns of several kinds: give such a frame here too.")
        encoded = from_frame(X, None if first else self._schema)
        self._schema = encoded.columns
        for line in blank_warning(encoded.blank):
            warnings.warn(f"{line}.", UserWarning, stacklevel=4)
        return encoded.inputs, encoded.columns

    def _read_images(self, X: Any, *, first: bool) -> np.ndarray:
        """An array of three or four dimensions; new images may be laid flat."""
        inputs = check_array(X, ensure_all_finite="allow-nan", allow_nd=True, ensure_2d=False, estimator=self)
        if inputs.ndim > 4:
            raise RequestError(f"X has shape {inputs.shape}; expected images (n, h, w) or (n, h, w, c).")
        if first:
            self.n_features_in_ = math.prod(self._image_shape)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        if inputs.shape[1:] not in (self._image_shape, (self.n_features_in_,)):
            raise RequestError(f"X has images of shape {inputs.shape[1:]}, but `fit` saw {self._image_shape}.")
        return np.asarray(inputs.reshape(len(inputs), *self._image_shape))

    def _dataset(self, X: Any, y: Any, sample_weight: Any, *, first: bool, task: Task | None = None) -> Dataset:
        """Checked rows with their targets. Rows of weight 0 are dropped and do not affect the scaler."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        inputs, columns = self._read_inputs(X, first=first)
        targets = self._check_targets(y)
        check_consistent_length(inputs, targets)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, inputs, dtype=np.float64)
            if weights.min() < 0:
                raise RequestError(f"sample weights must be at least 0; got {weights.min():g}.")
            kept = weights > 0
            if not kept.any():
                raise RequestError("all sample weights are zero: there is nothing to learn from.")
            inputs, targets, weights = inputs[kept], targets[kept], weights[kept]
        if first:
            self._task = task or self._learn_task(targets)
        return Dataset(inputs, self._encode_targets(targets, self._task), self._task, columns, weights, name="X")

    def _given_parts(self, train: Dataset, validation_data: Any) -> tuple[Dataset, AbstractSplit]:
        """Separately given training and validation rows, as one data set with its split."""
        if not isinstance(validation_data, (tuple, list)) or len(validation_data) not in (2, 3):
            raise RequestError("`validation_data` must be (X, y) or (X, y, sample_weight).")
        valid_X, valid_y, valid_weight = (*validation_data, None)[:3]
        valid = self._dataset(valid_X, valid_y, valid_weight, first=False)
        if not valid.labelled.all():
            row = int(np.argmin(valid.labelled))
            raise RequestError(f"`validation_data`: row {row} has no target to be judged by. Leave such rows out.")
        return join_parts(train, valid)

    def _seed(self) -> int:
        """An integer is the seed itself; a RandomState, or NumPy's own where there is none, draws one."""
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _split(self, rows: int) -> AbstractSplit:
        fraction = self.validation_fraction
        if not isinstance(fraction, numbers.Real) or not 0 <= fraction < 1:
            raise RequestError(f"`validation_fraction` must lie in [0, 1); got {fraction!r}. Default: 0.1.")
        if fraction == 0 or rows < FEW_ROWS:
            return TrainingRows()
        # At most one row in fifty changes sides, so that folds of nearly one size share a compiled program.
        multiple = 2 ** max(0, int(math.log2(rows / 50))) if rows >= 50 else 1
        return HoldOut(valid=float(fraction), test=0.0, multiple=multiple)

    @abc.abstractmethod
    def _used_rows(self) -> UsedRows | None:
        """The rows that the network was trained on or selected by."""

    def _warn_of_used(self, X: Any) -> None:
        """Warn if most rows of a score were seen in `fit`; a few equal rows may be chance."""
        used = self._used_rows()
        among = np.zeros(0) if used is None else used.among(self._read_inputs(X, first=False)[0])
        if len(among) and 2 * among.sum() > len(among):
            share = "All" if among.all() else f"{among.mean():.0%}"
            warnings.warn(
                f"{share} of these rows were used to train or to choose the network, so this score is optimistic. "
                "Score rows that `fit` did not see.",
                UserWarning,
                stacklevel=3,
            )

    def _predictions(self, X: Any) -> np.ndarray:
        """Probabilities or numbers (n, k), each row independent of the others."""
        check_is_fitted(self)
        inputs, _ = self._read_inputs(X, first=False)
        return np.asarray(self._trained().predict(inputs))


class NetworkEstimator(Estimator):
    """One network: the common part of `Classifier` and `Regressor`."""

    model: Any
    optimiser: Any
    batches: Any
    scaler: Any
    stopping: Any
    warm_start: bool
    max_time: float | None
    _slots: tuple[str, ...] = SLOTS  # which parameters are parts

    @abc.abstractmethod
    def _recommended(self) -> Recipe:
        """The recipe that supplies the parts that are None."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "record_")

    def _trained(self) -> AbstractPredictor:
        return self.record_.predictor

    def _used_rows(self) -> UsedRows | None:
        return self.record_.used

    # Parameters.

    def _part(self, slot: str) -> Any:
        chosen = getattr(self, slot)
        return getattr(self._recommended(), slot) if chosen is None else chosen

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with `deep`, also the nested knobs and parts, such as `optimiser__learning_rate`."""
        found = super().get_params(deep=False)
        if deep:
            for slot in self._slots:
                found.update(nested_parameters.read_parameters(slot, self._part(slot)))
        return dict(found)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `optimiser__learning_rate=0.01` replaces the optimiser by a changed copy."""
        names = self._get_param_names()
        chosen = {name: value for name, value in params.items() if name in names}
        for full, value in params.items():
            slot, _, name = full.partition("__")
            if full in chosen:
                continue
            if slot not in self._slots or not name:
                hint = nearest(full, names)
                raise RequestError(f"{type(self).__name__} has no parameter `{full}`.{hint}")
            part = chosen.get(slot, getattr(self, slot))
            effective = getattr(self._recommended(), slot) if part is None else part
            changed = nested_parameters.write_parameters(slot, effective, name, value)
            chosen[slot] = part if changed is effective else changed
        for name, value in chosen.items():
            setattr(self, name, value)
        return self

    # Training.

    def _given(self) -> dict[str, Any]:
        """The parts given by the user."""
        return {slot: getattr(self, slot) for slot in self._slots if getattr(self, slot) is not None}

    def _recipe(self, dataset: Dataset, split: AbstractSplit, key: Key[Array, ""]) -> Recipe:
        """The recipe for these rows, which `fit` will split by this key."""
        given = self._given()
        if self.warm_start and hasattr(self, "record_"):  # the network that goes on, however many rows there are now
            given.setdefault("model", self.record_.recipe.model)
        return self._by_metric(defaults.for_data(dataset, split=split, **given), dataset.task)

    def _by_metric(self, recipe: Recipe, task: Task) -> Recipe:
        return recipe if self.metric is None else defaults.following(recipe, check_metric(self.metric, task.kind))

    def _run_options(self) -> RunOptions:
        limit = math.inf if self.max_time is None else self.max_time
        if not isinstance(limit, numbers.Real) or not limit > 0:
            raise RequestError(f"`max_time` must be None or a positive number of seconds; got {self.max_time!r}.")
        return RunOptions(max_seconds=float(limit), watch=_print_line if self.verbose else silent)

    @property
    def examples_(self) -> Any:
        """A frame with a row for each example of `fit`: see `gradwise.records.ExampleRecord`."""
        return examples_frame(self.record_.examples)

    def _keep(self, record: Fit, passes: int) -> Self:
        """Store the record; warn if training did not end well."""
        self.record_ = record
        self.history_ = record.history
        self.n_iter_ = passes
        if record.outcome.failed:
            last = [finding for finding in record.findings if finding.level == "error"][-1]
            warnings.warn(f"{last.what} To do: {last.next}", ConvergenceWarning, stacklevel=3)
        elif record.outcome.name == "interrupted":
            warnings.warn(f"training was {record.outcome}: the best network so far is kept.", UserWarning, stacklevel=3)
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation_data: Any = None) -> Self:
        """Train one network.

        `validation_data` is `(X, y)` or `(X, y, sample_weight)`, used for validation instead of a part of `X`. With
        `warm_start`, training starts from the scaler, parameters and optimiser state of the previous call.
        """
        options = self._run_options()
        warm = self.record_ if self.warm_start and hasattr(self, "record_") else None
        train = self._dataset(X, y, sample_weight, first=warm is None)
        dataset, split = train, self._split(int(train.labelled.sum()))
        if validation_data is not None:
            dataset, split = self._given_parts(train, validation_data)
        key = keys.from_seed(self._seed())
        recipe = self._recipe(dataset, split, key)
        if warm is not None:
            _check_same_network(warm, recipe, train)
        record = fit_recipe(
            recipe,
            dataset,
            key=key,
            metric=self.metric,
            class_weight=self.class_weight,
            options=options,
            warm=warm,
            check_data=False,  # one of many folds, perhaps
            describe=Description(baselines=False, importance=False),
        )
        return self._keep(record, math.ceil(record.outcome.age_examples / record.data.rows.train))

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, task: Task | None) -> Self:
        """One pass over these rows; the first call fixes scaler, classes and network."""
        earlier = self.record_ if hasattr(self, "record_") else None
        train = self._dataset(X, y, sample_weight, first=earlier is None, task=task)
        key = keys.from_seed(earlier.seed if earlier else self._seed())
        recipe = self._recipe(train, TrainingRows(), key)
        if lasts_a_run(recipe.optimiser):  # nobody knows how long this run will be
            recipe = self._by_metric(defaults.for_task(train.task, split=TrainingRows(), **self._given()), train.task)
            if earlier is not None and lasts_a_run(earlier.recipe.optimiser):
                raise RequestError(
                    "the present network was trained by a schedule over a whole run, to which a pass cannot be added. "
                    "Use `warm_start=True` and `fit`, or `partial_fit` from the first rows on."
                )
        if earlier is not None:
            _check_same_network(earlier, recipe, train)
        record = one_pass(recipe, train, key=key, class_weight=self.class_weight, earlier=earlier)
        return self._keep(record, len(record.history["age_examples"]))
