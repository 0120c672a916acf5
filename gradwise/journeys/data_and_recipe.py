"""The data of a request and the recipe to train on them, both validated before anything is created or trained."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from .. import defaults
from ..checking.data.as_read import find_as_read, join_findings, refuse_unlearnable
from ..checking.data.data import find_data, from_dataset, measure_data
from ..data.input_kind import kind_of_inputs
from ..data.reading.read import ReadRequest, read
from ..data.splits import GroupHoldOut, TimeHoldOut, join_parts
from ..evaluation.baselines import compare_with_baselines
from ..evaluation.importance import measure_importance
from ..evaluation.metrics import check_metric
from ..pretraining.stack import Pretrained
from ..pretraining.transfer import find_seen_rows
from ..recipes import InputForm, input_form, kept_form
from ..records.evidence.fit_evidence import FitEvidence
from ..records.finding import Finding
from ..runtime import keys, memory
from ..runtime.errors import RequestError
from ..specs.adapters import as_criterion
from ..specs.contracts import AbstractCriterion
from ..specs.dataset import Dataset, text_places
from ..specs.paths import knobs
from ..specs.recipe import Recipe
from ..training.committee import Committee
from ..training.predictor import AbstractPredictor
from ..training.prepare import CLASS_WEIGHTS, is_trained_on, refuse_unlabelled, split_labelled, weights_of_classes
from ..training.state import count_network
from .pretraining import (
    check_layers,
    check_varied,
    expanded,
    features_recipe,
    pretrained_recipe,
    slowed,
    takes_probabilities,
    transferred_recipe,
)
from .requests.assignments import Resolved, assignments_of, resolve
from .requests.training_requests import DataRequest, FitRequest


def expected_sizes(recipe: Any, dataset: Dataset) -> tuple[int, int, int]:
    """The approximate sizes of training, validation and test sets. The split itself needs a device."""
    spares = isinstance(recipe.model, Pretrained) and dataset.task.kind != "inputs"  # rows without a target are apart
    count = int(dataset.labelled.sum()) if spares else len(dataset)

    def size(share: float) -> int:
        return round(count * share) if share < 1 else int(share)

    known = {path: value for path, _, value in knobs(recipe)}
    valid = size(known.get("split.valid", 0.0))
    if dataset.test is not None:
        return max(1, count - valid), valid, len(dataset.test)
    test = size(known.get("split.test", 0.0))
    return max(1, count - valid - test), valid, test


def trained_model(recipe: Any) -> Any:
    """The network trained in the end; after pre-training, a perceptron with the widths of the layers."""
    return recipe.model.mlp if isinstance(recipe.model, Pretrained) else recipe.model


def count_state(recipe: Any, shape: tuple[int, ...], outputs: int, examples: int) -> tuple[int, int]:
    """The number of parameters and the bytes of the training state of the network that is trained in the end."""
    return count_network(trained_model(recipe), recipe.optimiser, shape, outputs, examples)


def _smaller(recipe: Any) -> str:
    """How to make the network smaller, if it has a knob for that."""
    if isinstance(recipe.model, Pretrained):
        return ": fewer units in --pretrain"
    known = {path: value for path, _, value in knobs(recipe)}
    if "model.widths" in known:
        return f", for example --set model.widths={','.join('256' for _ in known['model.widths'])}"
    return ", for example --set model.units=256" if "model.units" in known else ""


def check_network(recipe: Any, dataset: Dataset) -> None:
    """Raises if the network does not fit into memory, before the system kills the process."""
    examples = expected_sizes(recipe, dataset)[0]
    parameters, needed = count_state(recipe, dataset.shape, dataset.task.outputs, examples)
    what = f"the network has {parameters:,} parameters, and training needs"
    memory.require_memory(needed, what, f"Make it smaller{_smaller(recipe)}.")


def start_device(on: str | None) -> None:
    """Starts the requested device of this process, if it is one, or raises and lists those available."""
    if on == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        devices = jax.devices()
    except RuntimeError as problem:
        reason = str(problem).splitlines()[0]
        raise RequestError(f"JAX could not start a device ({reason}). Try --on cpu, or unset JAX_PLATFORMS.") from None
    if on == "gpu" and devices[0].platform != "gpu":
        names = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in devices}))
        raise RequestError(f"--on gpu: JAX found no GPU, only {names}. Leave out --on to use that.")


def are_sequences(dataset: Dataset) -> bool:
    """Whether each example is a sequence or a tree."""
    return kind_of_inputs(dataset.inputs) in ("sequences", "trees")


def read_requested(options: DataRequest) -> Dataset:
    """The data of a request: a file, a named set, or what a call from Python passed."""
    given = options.given
    request = ReadRequest(
        targets=options.target,
        drop=options.drop,
        kinds=options.kind,
        task=options.task,
        group=options.group,
        time=options.time,
        weight=options.weight,
        test=options.test if given.test is None else given.test,
        unsupervised=options.learns_inputs,
    )
    dataset = read(options.data if given.data is None else given.data, request, given.targets)
    blind = dataset.task.kind == "inputs" or getattr(options, "pretrain", None) is not None
    if blind and are_sequences(dataset):
        raise RequestError("sequences and trees need a target: name one with --target, and leave out --pretrain.")
    if blind and (texts := list(text_places(dataset.columns))):
        raise RequestError(
            f"column `{texts[0]}` is text, which is learned with a target alone: name one with --target, and leave out "
            f"--pretrain, or drop the column (--drop {texts[0]})."
        )
    return dataset


def _recommended(options: DataRequest, kind: str, unit: bool, form: InputForm, parts: dict[str, Any]) -> Recipe:
    """The initial recipe for inputs of this form; `unit`: the scaled inputs lie in [0, 1]."""
    layers = options.pretrain if isinstance(options, FitRequest) else None
    if layers is not None:
        return pretrained_recipe(kind, layers, unit, **parts)
    if isinstance(options, FitRequest) and options.from_ is not None:
        return transferred_recipe(kind, options.from_, options.freeze, **parts)
    if kind == "inputs":
        return features_recipe(options.learner, unit, **parts)
    return defaults.of_form(kind, form, **parts)


def follow_request(recipe: Recipe, options: DataRequest, kind: str) -> Recipe:
    """The recipe with early stopping by the requested metric, and a split by groups or time if there are any."""
    if options.metric and kind != "inputs":
        recipe = defaults.following(recipe, check_metric(options.metric, kind))
    split = GroupHoldOut if options.group else TimeHoldOut if options.time else None
    if split is not None and not isinstance(recipe.split, split):
        recipe = dataclasses.replace(recipe, split=split())
    return recipe


def resolve_for(
    options: DataRequest,
    kind: str,
    dataset: Dataset | None = None,
    *,
    form: InputForm = InputForm(),
    **parts: Any,
) -> Resolved:
    """The recommended recipe for this kind of task, changed by the request.

    Feature learners also depend on the scaled inputs, if the data set is given. Inputs of a `form` have their own
    recipe, unless a part that the rest depends on is exchanged; `parts` are those of any other recipe.
    """
    assignments = assignments_of(options)
    layers = options.pretrain if isinstance(options, FitRequest) else None
    unit = takes_probabilities(assignments, dataset) if layers or kind == "inputs" else True
    own = dict(options.given.parts)
    form = kept_form(form, {one.path for one in assignments}, **own)
    if options.given.recipe is not None:
        recipe = dataclasses.replace(options.given.recipe, **own)
    else:
        recipe = _recommended(options, kind, unit, form, {**({} if form.kind in ("table", "texts") else parts), **own})
    if layers is not None:
        assignments = expanded(assignments, len(recipe.model.layers))
    resolved = resolve(follow_request(recipe, options, kind), assignments)
    if isinstance(options, FitRequest) and options.from_ is not None:  # another optimiser may have been set
        return dataclasses.replace(resolved, recipe=slowed(resolved.recipe, options.from_, options.freeze))
    return resolved


def refuse_targetless(criterion: AbstractCriterion, dataset: Dataset) -> None:
    """Raises if the criterion needs a target and the data have none."""
    if dataset.task.kind == "inputs" and criterion.learns_from != "inputs":
        raise RequestError(
            f"`{type(criterion).__name__}` needs a target, but the data have none: name it with --target, or leave "
            "out --set criterion to learn features."
        )


# What a training takes care of by itself: it scales the inputs and shuffles the rows.
_CARED_FOR = ("GW204", "GW208")


def find_in_data(recipe: Recipe, dataset: Dataset, key: Key[Array, ""]) -> tuple[Finding, ...]:
    """The warnings and errors that `gradwise check` would find in the data, split as training with this key does."""
    criterion, as_read = as_criterion(recipe.criterion), find_as_read(dataset)
    if dataset.task.kind == "inputs" or criterion.learns_from != "targets":
        return as_read
    if not (known := dataset.labelled).all():  # pre-training may use the others
        dataset = dataclasses.replace(dataset.take(np.flatnonzero(known)), test=dataset.test)
    train, valid, test = split_labelled(recipe.split, criterion, dataset, key=keys.named(key, "split"))
    apart = None if valid is train else valid  # few rows are judged on those that they were trained on
    findings = find_data(measure_data(**from_dataset(dataset, (train, apart, test)), key=keys.named(key, "data")))
    seen = find_seen_rows(recipe.model, test or valid)
    told = (one for one in findings if one.level != "note" and one.code not in _CARED_FOR)
    return join_findings(as_read, (*seen, *told))


def _parameters(predictor: AbstractPredictor) -> int:
    """The parameters that one prediction takes; a small network counts as one that is not, for what else it costs."""
    members = predictor.members if isinstance(predictor, Committee) else (predictor,)
    arrays = [jax.tree.leaves(eqx.filter(getattr(one, "network", None), eqx.is_array)) for one in members]
    return sum(max(100_000, sum(leaf.size for leaf in leaves)) for leaves in arrays)


@dataclasses.dataclass(frozen=True)
class Description:
    """What is measured of a finished model on held-out rows, which decides nothing.

    `baselines` are simple models on the same training and test rows, `importance` is that of each column.
    """

    baselines: bool = True
    importance: bool = True

    def of(
        self,
        predictor: AbstractPredictor,
        evidence: FitEvidence,
        recipe: Recipe,
        dataset: Dataset,
        *,
        key: Key[Array, ""],
        metric: str,
        class_weight: CLASS_WEIGHTS = None,
        pooled: bool = False,
    ) -> FitEvidence:
        """The evidence with it, of the split that training makes with this key.

        Where the network's folds were `pooled`, simple models learn from all that is not the test set.
        """
        criterion = as_criterion(recipe.criterion)
        if not (self.baselines or self.importance) or "inputs" in (dataset.task.kind, criterion.learns_from):
            return evidence
        if criterion.learns_from == "targets" and not (known := dataset.labelled).all():  # pre-training used the others
            dataset = dataclasses.replace(dataset.take(np.flatnonzero(known)), test=dataset.test)
        train, valid, test = split_labelled(recipe.split, criterion, dataset, key=keys.named(key, "split"))
        if self.importance:
            part = "test" if test is not None else "train" if is_trained_on(valid, train) else "valid"
            options: dict[str, Any] = {"cost": _parameters(predictor), "seed": keys.seed_of(key)}
            shuffled = measure_importance(predictor.predict, test or valid, metric, part=part, **options)
            evidence = dataclasses.replace(evidence, importance=shuffled)
        if not self.baselines or test is None:
            return evidence
        by_class = weights_of_classes(class_weight, train)
        train = join_parts(train, valid)[0] if pooled and valid is not train else train
        found = compare_with_baselines(train, test, metric, predictor.predict(test.inputs), by_class)
        return dataclasses.replace(evidence, baselines=found)


def read_data(options: FitRequest) -> tuple[Dataset, Resolved]:
    """The data to train on and their recipe; raises if they cannot be learned from."""
    dataset = read_requested(options)
    resolved = resolve_for(options, dataset.task.kind, dataset, form=input_form(dataset))
    criterion = as_criterion(resolved.recipe.criterion)
    if criterion.learns_from == "inputs" or options.pretrain is not None:
        check_varied(dataset)
    if criterion.learns_from == "inputs":
        dataset = dataset.without_targets()
        check_metric(options.metric, dataset.task.kind, criterion.measured(resolved.recipe.model))
    refuse_targetless(criterion, dataset)
    if options.pretrain is None:
        refuse_unlabelled(criterion, dataset)
    refuse_unlearnable(dataset)
    criterion.check_task(dataset.task)
    check_network(resolved.recipe, dataset)
    check_layers(resolved.recipe, dataset)
    return dataset, resolved
