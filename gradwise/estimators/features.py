"""Feature learners as transformers: `fit` uses inputs alone, `transform` returns their codes (rows A2 to A6).

    features = DenoisingAutoEncoder(random_state=0).fit(X)
    features.transform(X)                                      # (n, 256)
    make_pipeline(AutoEncoder(model=MlpAutoEncoder((100,))), LogisticRegression()).fit(X, y)
    GridSearchCV(DenoisingAutoEncoder(), {"criterion__corruption__level": [0.1, 0.25], "model__widths": [(100,)]})

`score` is minus the selection score of learners (row E20), such as the error on inputs corrupted in one fixed way. A
grid search can compare numbers of features by it, unlike by the plain reconstruction error.
"""

import dataclasses
from typing import Any, Self

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Key
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_array, check_is_fitted

from ..criteria.reconstruction import unit_range
from ..data.scaling import Automatic
from ..pretraining.layer_recipes import LEARNERS, SCALER
from ..runtime import keys
from ..runtime.errors import RequestError
from ..specs.adapters import as_criterion
from ..specs.contracts import AbstractSplit
from ..specs.dataset import Dataset, Inputs, Task
from ..specs.fitted_scaler import FittedScaler
from ..specs.networks import as_network
from ..specs.recipe import Recipe
from ..specs.sparse.rows import is_csr
from ..training.final_measurement import measures_of
from ..training.predictor import Predictor, outputs_of, scaled_for
from .base import Estimator, NetworkEstimator
from .unscale import can_unscale, unscale

UNITS = 256  # features of a learner whose model was not given


class Decoding(eqx.Module):
    """Maps a code back to an input, as its criterion does."""

    network: Any
    criterion: Any

    def __call__(self, code: Float[Array, " code"], *, key: Any = None) -> Float[Array, " inputs"]:
        return self.criterion.decode(self.network, code)


def decoded(learned: list[Predictor], scaler: FittedScaler, codes: Any) -> np.ndarray:
    """Raw rows from the codes of a stack of networks, each of which encodes the codes of the one before."""
    codes = check_array(codes, input_name="X")
    width = learned[-1].outputs
    if codes.shape[1] != width:
        raise RequestError(f"X has {codes.shape[1]} columns, but there are {width} features.")
    inputs = np.asarray(codes, np.float32)
    for one in reversed(learned):
        inputs = outputs_of(Decoding(one.network, one.criterion), inputs.astype(np.float32))
    return unscale(scaler, inputs)


def refuse_one_way(networks: list[Any], scaler: FittedScaler) -> None:
    """Raise an error if features cannot be turned back into raw rows."""
    for network in networks:
        if "decode" not in as_network(network).offers:
            raise AttributeError(f"a {type(network).__name__} has no decoder: its features cannot be turned back.")
    if not can_unscale(scaler):
        raise AttributeError("what the scaler did to these columns cannot be undone: they hold categories.")


def scaled_to_unit(scaler: Any, dataset: Dataset, split: AbstractSplit, key: Key[Array, ""]) -> bool:
    """Whether a scaler fitted on the training rows maps all rows into [0, 1]."""
    if scaler is SCALER:
        return True  # it holds all numbers there
    train, _, _ = split(dataset, key=keys.named(key, "split"))
    fitted = scaler.fit(train.inputs, train.columns)
    by_entries = is_csr(dataset.inputs) and fitted.keeps_zeros()
    return unit_range(fitted.apply_sparse(dataset.inputs) if by_entries else fitted.apply(dataset.inputs))


class WithoutTargets(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):
    """Rows without targets in, features out."""

    def _check_targets(self, y: Any) -> np.ndarray:
        return np.asarray(y)

    def _learn_task(self, targets: np.ndarray) -> Task:
        return Inputs()

    def _encode_targets(self, targets: np.ndarray, task: Task) -> np.ndarray:
        return targets

    @staticmethod
    def _no_targets(X: Any) -> np.ndarray:
        return np.zeros((_num_samples(X), 0))


class FeatureLearner(WithoutTargets, NetworkEstimator):
    """The common part of the estimators that learn one network of features.

    Parameters
    ----------
    model, optimiser, batches, criterion, scaler, stopping
        Parts of the recipe; None is the recommended one. Their knobs are nested parameters: `model__widths`,
        `criterion__corruption__level`, `optimiser__learning_rate`, ... The recommended scaler maps all columns into
        [0, 1]. With another one, the recommended criterion is a squared error if some input lies outside.
    validation_fraction
        The share of the rows held out for validation. With 0, or with fewer than 20 rows, the training rows are used
        for validation too.
    warm_start, max_time, verbose, random_state
        As for `Classifier`.

    Attributes
    ----------
    n_features_in_, feature_names_in_, record_, history_, n_iter_
        As for `Classifier`.
    """

    metric = None
    _kind: str

    def __init__(
        self,
        *,
        model: Any = None,
        optimiser: Any = None,
        batches: Any = None,
        criterion: Any = None,
        scaler: Any = None,
        stopping: Any = None,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        max_time: float | None = None,
        verbose: bool | int = False,
        random_state: Any = None,
    ):
        self.model = model
        self.optimiser = optimiser
        self.batches = batches
        self.criterion = criterion
        self.scaler = scaler
        self.stopping = stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.max_time = max_time
        self.verbose = verbose
        self.random_state = random_state

    def _learner(self, unit: bool) -> Recipe:
        """The recommended recipe for inputs that lie in [0, 1], or for any."""
        return LEARNERS[self._kind](UNITS, unit)

    def _recommended(self) -> Recipe:
        return self._learner(True)

    @property
    def _n_features_out(self) -> int:
        return int(self.record_.predictor.outputs)

    def _learn_task(self, targets: np.ndarray) -> Task:
        self._in_unit_range: bool | None = None  # a new training chooses anew; one that goes on keeps its criterion
        return super()._learn_task(targets)

    def _recipe(self, dataset: Dataset, split: AbstractSplit, key: Key[Array, ""]) -> Recipe:
        if self._in_unit_range is None:
            self._in_unit_range = scaled_to_unit(self._part("scaler"), dataset, split, key)
        recipe = dataclasses.replace(self._learner(self._in_unit_range), split=split, **self._given())
        if as_criterion(recipe.criterion).learns_from != "inputs":
            raise RequestError(
                f"`criterion` must learn from inputs alone, as Reconstruction() does; got {recipe.criterion!r}."
            )
        return recipe

    def fit(self, X: Any, y: Any = None, validation_data: Any = None) -> Self:  # type: ignore[override]
        """Learn features of these rows; `y` is ignored.

        `validation_data` holds rows used for validation instead of a part of `X`.
        """
        apart = None if validation_data is None else (validation_data, self._no_targets(validation_data))
        return super().fit(X, self._no_targets(X), None, apart)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from one pass over these rows, without validation. The first call fixes the scaler and the network."""
        return self._partial_fit(X, self._no_targets(X), None, None)

    def transform(self, X: Any) -> np.ndarray:
        """The features of each row (n, features), independent of the other rows."""
        return self._predictions(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean selection score (row E20) of these rows: larger is better, whatever the number of features."""
        check_is_fitted(self)
        inputs, _ = self._read_inputs(X, first=False)
        predictor = self.record_.predictor
        scaled = scaled_for(predictor.network, predictor.scaler, inputs)
        values = measures_of(predictor.criterion, predictor.network, scaled)
        return -float(np.mean(values[predictor.criterion.measured(predictor.network)[0]]))

    def _can_go_back(self) -> bool:
        if hasattr(self, "record_"):
            refuse_one_way([self.record_.predictor.network], self.record_.predictor.scaler)
        return True

    @available_if(_can_go_back)  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> np.ndarray:
        """The rows that features stand for, in the units of the raw columns."""
        check_is_fitted(self)
        return decoded([self.record_.predictor], self.record_.predictor.scaler, X)


class AutoEncoder(FeatureLearner):
    """Learns a code that reconstructs the input (row A3); use fewer features than inputs, or it may just copy them.

    Parameters and attributes are those of `FeatureLearner`; `model` is a `gradwise.models.MlpAutoEncoder`.
    """

    _kind = "plain"


class DenoisingAutoEncoder(FeatureLearner):
    """Learns a code that reconstructs the input from a corrupted one (row A5); it may be larger than the input.

    Parameters and attributes are those of `FeatureLearner`; `criterion` is a `Reconstruction` with a `corruption`.
    """

    _kind = "denoising"


class ContractiveAutoEncoder(FeatureLearner):
    """Learns a code that reconstructs the input but changes little when the input does (row A6).

    Parameters and attributes are those of `FeatureLearner`; `criterion` is a `Reconstruction` with a `Contraction`.
    """

    _kind = "contractive"


class RBM(FeatureLearner):
    """The means of the hidden units of a restricted Boltzmann machine (row A2).

    Parameters and attributes are those of `FeatureLearner`; `model` is a `gradwise.models.Rbm`, `criterion` a
    divergence. Visible units are binary for inputs in [0, 1], else Gaussian: then scale to standard deviation 1.
    """

    _kind = "rbm"


class SparseCoding(FeatureLearner):
    """Sparse codes: each input is explained by few of many atoms, so most features are 0 (row A10).

    Parameters and attributes are those of `FeatureLearner`; `model` is a `gradwise.models.SparseDictionary`,
    whose penalty is `model__penalty`. The recommended scaler centres the columns, which suits a sum of atoms.
    """

    def _learner(self, unit: bool) -> Recipe:
        from ..criteria.sparse_code_energy import SparseCode
        from ..models.sparse_coding import SparseDictionary as Dictionary

        shared = LEARNERS["plain"](UNITS, unit)
        return dataclasses.replace(shared, model=Dictionary(units=UNITS), criterion=SparseCode(), scaler=Automatic())
