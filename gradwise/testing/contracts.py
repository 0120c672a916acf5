"""Contracts as runnable checks. They hold for every part of gradwise; run them on a part of your own.

    from gradwise.testing import check_part

    def test_my_optimiser():
        check_part(MyOptimiser(learning_rate=0.1))

`check_part` runs `check_spec` and the check of each kind the part is. A broken promise is an `AssertionError` whose
message says which one. All of it runs on a few numbers, in seconds.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PyTree

from ..criteria.code_sparsity import AbstractSparsity
from ..criteria.hidden_units import HiddenUnits
from ..criteria.losses import AbstractLoss, GaussianLoss
from ..criteria.penalties import AbstractPenalty
from ..criteria.supervised import Supervised
from ..curvature.objective import Examples, Objective, gather
from ..data.batches import Fixed
from ..models.activations import AbstractActivation, Tanh
from ..models.mlp import Mlp
from ..models.recurrence.recurrent import Recurrent
from ..models.trees.recursive import Recursive
from ..specs.contracts import AbstractBatches, AbstractModel, AbstractOptimiser
from ..specs.knobs import Spec, declarations
from ..specs.networks import apply_batch
from ..specs.paths import named_leaves, trainable
from ..specs.schedules import AbstractSchedule
from ..training.state import uses_objective, with_room
from .spec_contracts import FAR, all_finite, check_spec, demand, tree_form

# --- optimisers


def a_tree() -> PyTree:
    """Parameters as a small network names them, with a place that holds none."""
    values = jr.normal(jr.key(7), (13,)) + 2.0
    layer = {"weight": values[:6].reshape(2, 3), "bias": values[6:8], "norm": None}
    return {"layers": (layer,), "output": {"weight": values[8:12].reshape(2, 2), "bias": values[12:]}}


def _criterion(parameters: PyTree) -> jax.Array:
    return sum((jnp.sum((leaf - 1.0) ** 2) for leaf in jax.tree.leaves(parameters)), start=jnp.zeros(())) / 2.0


_EXAMPLES = 24
_FEW = 8


def a_problem() -> tuple[Callable[[Any], Objective], PyTree]:
    """An objective for any optimiser, and where to start: a tanh network learns another one's outputs.

    The criterion is a function of the parameters and of the update's number; its batch is the whole training set.
    """
    inputs = jnp.asarray(np.random.default_rng(3).normal(size=(_EXAMPLES, 3)), jnp.float32)
    kind = Mlp(widths=(4,), activation=Tanh(), dropout=0.0)
    teacher = kind.build((3,), 2, key=jr.key(5))
    train = Examples(inputs, jax.vmap(lambda x: teacher(x))(inputs))
    parameters, rest = trainable(kind.build((3,), 2, key=jr.key(6)))
    batch = gather(train, jnp.arange(_EXAMPLES), jnp.ones(_EXAMPLES))

    def objective(update: Any) -> Objective:
        return Objective(
            Supervised(GaussianLoss()), Fixed(_EXAMPLES), rest, train, jr.key(8), jnp.asarray(update), batch
        )

    return objective, parameters


def run_updates(optimiser: AbstractOptimiser, parameters: PyTree, updates: int) -> tuple[PyTree, PyTree]:
    """Parameters and state after some updates, as one scan: on `a_problem` where the optimiser asks for more than the
    gradient, else on half the squared distance to 1."""
    objective = a_problem()[0] if uses_objective(optimiser) else None

    def body(carry: tuple[PyTree, PyTree], number: Any) -> tuple[tuple[PyTree, PyTree], None]:
        here, state = carry
        criterion = _criterion if objective is None else objective(number)
        value, gradient = jax.value_and_grad(lambda point: criterion(point))(here)
        moves, state = optimiser.build().update(gradient, state, here, value=value, objective=criterion)
        return (optax.apply_updates(here, moves), state), None

    start = (parameters, optimiser.build().init(parameters))
    return jax.lax.scan(body, start, jnp.arange(updates))[0]


def _changed(optimiser: AbstractOptimiser) -> AbstractOptimiser:
    """The same optimiser, its numeric knobs a little smaller."""
    return jax.tree.map(lambda leaf: leaf * 0.9 if isinstance(leaf, np.floating) else leaf, optimiser)


def _check_elementwise(optimiser: AbstractOptimiser, parameters: PyTree) -> None:
    """Each element moves as it does without the others."""
    name, rule = type(optimiser).__name__, optimiser.build()

    def move(start: PyTree, gradients: list[PyTree]) -> PyTree:
        state = rule.init(start)
        for gradient in gradients:
            moves, state = rule.update(gradient, state, start, value=jnp.ones(()), objective=None)
            start = optax.apply_updates(start, moves)
        return start

    def some(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[: -(-leaf.shape[0] // 2)], tree)

    slopes = [jax.tree.map(lambda leaf, number=number: jnp.cos(leaf + number), parameters) for number in range(3)]
    whole, part = some(move(parameters, slopes)), move(some(parameters), list(map(some, slopes)))
    same = all(map(jnp.allclose, jax.tree.leaves(whole), jax.tree.leaves(part)))
    demand(same, f"{name}: it says that it acts elementwise, but a part moves otherwise alone")


def check_optimiser(optimiser: AbstractOptimiser, parameters: PyTree = None, updates: int = 30) -> None:
    """It descends; its state keeps its form and shares no buffer; knobs are read at run time, alone or as a population.

    `parameters` replaces the small tree (`layers.0.weight`, ..., `output.bias`) that the check trains by default.
    """
    name = type(optimiser).__name__
    optimiser = with_room(optimiser, _EXAMPLES)
    objective, begin = a_problem()
    judge = jax.jit(objective(0).__call__) if uses_objective(optimiser) else _criterion
    if parameters is None:
        parameters = begin if uses_objective(optimiser) else a_tree()
    state = optimiser.build().init(parameters)
    leaves = {id(leaf) for leaf in jax.tree.leaves(parameters)}
    shared = [path for path, leaf in named_leaves(state) if id(leaf) in leaves]
    demand(not shared, f"{name}: its first state holds the parameters' own buffers, which are donated: {shared}")
    demand(all_finite(optimiser.rate(state)), f"{name}: no finite rate before the first update")

    traces = []

    @eqx.filter_jit
    def run(one: AbstractOptimiser, start: PyTree) -> tuple[PyTree, PyTree, PyTree]:
        traces.append(1)
        reached, last = run_updates(one, start, updates)
        return reached, one.judged(reached, last), one.rate(last)

    reached, judged, rate = run(optimiser, parameters)
    demand(tree_form(reached) == tree_form(parameters), f"{name}: the parameters change their form")
    demand(tree_form(judged) == tree_form(parameters), f"{name}: `judged` does not have the parameters' form")
    demand(jnp.shape(rate) == () and float(rate) > 0, f"{name}: `rate` must be one positive number; it is {rate}")
    for what, point in (("the parameters", reached), ("what is judged", judged)):
        demand(all_finite(point), f"{name}: {what} did not stay finite")
        demand(judge(point) < judge(parameters), f"{name}: {what} did not descend")

    if optimiser.acts_elementwise():
        _check_elementwise(optimiser, parameters)

    other = _changed(optimiser)
    reached_other = run(other, parameters)[0]
    demand(len(traces) == 1, f"{name}: another value of a knob compiles anew; make it a `knob`, not a `switch`")

    def stack(one: Any, two: Any) -> Any:
        return jnp.stack([one, two]) if isinstance(one, np.floating) else one

    axes = jax.tree.map(lambda leaf: 0 if isinstance(leaf, np.floating) else None, optimiser)
    if uses_objective(optimiser):  # line searches and solves amplify rounding: a few updates suffice
        updates = min(updates, _FEW)
        few = eqx.filter_jit(lambda one: run_updates(one, parameters, updates)[0])
        reached, reached_other = few(optimiser), few(other)
    both = eqx.filter_vmap(lambda one: run_updates(one, parameters, updates)[0], in_axes=(axes,))(
        jax.tree.map(stack, optimiser, other)
    )
    for number, alone in enumerate((reached, reached_other)):
        for (path, many), (_, one) in zip(named_leaves(both), named_leaves(alone), strict=True):
            same = np.allclose(many[number], one, rtol=1e-4, atol=1e-5)
            demand(same, f"{name}: in a population {path} is not what it is alone")


def check_schedule(schedule: AbstractSchedule) -> None:
    """Factors are finite and not negative, on falling and on stalled criteria; the state keeps its form."""
    name = type(schedule).__name__

    def body(carry: tuple[Any, Any], value: Any) -> Any:
        state, update = carry
        state, factor = schedule.step(state, update, value)
        return (state, update + 1), factor

    values = jnp.concatenate([jnp.linspace(2.0, 1.0, 50), jnp.ones(50)])
    _, factors = jax.lax.scan(body, (schedule.init(), jnp.zeros((), jnp.int32)), values)
    demand(factors.shape == (100,), f"{name}: one factor an update is asked; got shape {factors.shape}")
    demand(all_finite(factors) and bool(jnp.all(factors >= 0)), f"{name}: a factor is negative or not finite")


# --- criteria


def a_target(task: str, outputs: int) -> jax.Array:
    """A target of the given kind, for one example: the last class; every other label; 0.5, 1.5, ..."""
    return {
        "classes": jnp.asarray(outputs - 1),
        "labels": (jnp.arange(outputs) % 2).astype(jnp.float32),
        "numbers": jnp.arange(outputs) + 0.5,
        "several": jnp.array([1.0, 0.5]),  # a class and a number
    }[task]


def check_loss(loss: AbstractLoss, outputs: int = 3) -> None:
    """One number an example; the right gradient; finite at outputs of ±1e4 (row B7); a link that is a prediction."""
    name = type(loss).__name__
    demand(loss.task() in ("classes", "labels", "numbers", "several"), f"{name}: no such task as {loss.task()!r}")
    target = a_target(loss.task(), outputs)

    @jax.jit
    def judge(output: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        value, score, link = loss.loss(output, target), loss.score(output, target), loss.link(output)
        demand(jnp.shape(value) == (), f"{name}: the loss of one example must be one number, not {jnp.shape(value)}")
        demand(jnp.shape(score) == (), f"{name}: the score of one example must be one number, not {jnp.shape(score)}")
        demand(link.shape == output.shape, f"{name}: the link must give {outputs} numbers, not {link.shape}")
        return value, jax.grad(loss.loss)(output, target), score, link

    signs = jnp.where(jnp.arange(outputs) % 2 == 0, 1.0, -1.0)
    for output in (0.0 * signs, FAR * signs, -FAR * signs, FAR * abs(signs), -FAR * abs(signs)):
        *values, link = judge(output)
        demand(all_finite(values), f"{name}: loss, gradient or score is not finite at outputs {np.asarray(output)}")
        demand(all_finite(link), f"{name}: the link is not finite at outputs {np.asarray(output)}")
        if loss.task() in ("classes", "labels"):
            demand(jnp.all((link >= 0) & (link <= 1)), f"{name}: the link must give probabilities; got {link}")
        if loss.task() == "classes":
            demand(abs(float(link.sum()) - 1.0) < 1e-5, f"{name}: the link's probabilities must sum to 1")
    with jax.enable_x64(True):
        point = np.linspace(-1.3, 1.7, outputs)
        value = jax.jit(loss.loss)
        slope = np.asarray(jax.jit(jax.grad(loss.loss))(point, target))
        for index, unit in enumerate(np.eye(outputs) * 1e-5):
            rise = (float(value(point + unit, target)) - float(value(point - unit, target))) / 2e-5
            demand(abs(rise - slope[index]) < 1e-6, f"{name}: the gradient of output {index} is wrong")


def check_penalty(penalty: AbstractPenalty, model: PyTree = None) -> None:
    """One number, 0 for parameters that are 0 and positive otherwise, with a finite gradient even there."""
    name = type(penalty).__name__
    demand("coefficient" in dict(declarations(penalty)), f"{name}: its `coefficient` must be a knob")
    model = a_tree() if model is None else model
    empty = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_inexact_array(leaf) else leaf, model)
    both = eqx.filter_jit(eqx.filter_value_and_grad(lambda tree: penalty(tree)))
    for tree in (model, empty):
        value, slope = both(tree)
        demand(jnp.shape(value) == (), f"{name}: must be one number; its shape is {jnp.shape(value)}")
        demand(all_finite((value, slope)), f"{name}: it or its gradient is not finite")
    demand(float(penalty(empty)) == 0.0, f"{name}: must be 0 where the parameters are 0")
    demand(float(penalty(model)) > 0.0, f"{name}: must be positive where the parameters are not 0")


def check_sparsity(penalty: AbstractSparsity) -> None:
    """One number a layer, its gradient that of differences; rows of weight 0 do not count; finite at 0 and 1."""
    name = type(penalty).__name__
    demand("coefficient" in dict(declarations(penalty)), f"{name}: its `coefficient` must be a knob")
    values, weights = jnp.linspace(0.1, 0.8, 12).reshape(4, 3), jnp.asarray([1.0, 1.0, 0.5, 0.0])

    @jax.jit
    @jax.value_and_grad
    def of(given: tuple[jax.Array, jax.Array], weights: jax.Array) -> jax.Array:
        layer = HiddenUnits("layers.0", given[0], span=lambda: (0.0, 1.0), bias=given[1])
        return penalty.of_units(layer, weights)

    bias = jnp.asarray([-1.0, 0.0, 2.0])
    for point in (values, jnp.zeros((4, 3)), jnp.ones((4, 3))):
        value, slopes = of((point, bias), weights)
        demand(jnp.shape(value) == (), f"{name}: must be one number; its shape is {jnp.shape(value)}")
        demand(all_finite((value, slopes)), f"{name}: it or its gradient is not finite")
    value, slopes = of((values, bias), weights)
    other = of((values.at[3].set(0.9), bias), weights)[0]
    demand(np.allclose(value, other, rtol=1e-6), f"{name}: a row of weight 0 counts")
    with jax.enable_x64(True):
        flat = np.concatenate([np.asarray(values, np.float64).ravel(), np.asarray(bias, np.float64)])
        back = jax.jit(lambda v: of((v[:12].reshape(4, 3), v[12:]), weights.astype(jnp.float64)))
        slope = np.concatenate([np.asarray(one).ravel() for one in back(flat)[1]])
        rises = [float(back(flat + step)[0] - back(flat - step)[0]) / 2e-5 for step in 1e-5 * np.eye(15)]
        demand(np.allclose(slope, rises, rtol=1e-4, atol=1e-7), f"{name}: its gradient is not that of its value")


# --- models and data


def check_activation(activation: AbstractActivation) -> None:
    """Element by element, finite with its slope at ±1e4, and with a positive gain."""
    name = type(activation).__name__
    a = jnp.asarray([[-FAR, -1.0, 0.0], [0.5, 1.0, FAR]])
    h = activation(a)
    demand(h.shape == a.shape, f"{name}: must keep the shape {a.shape}; got {h.shape}")
    demand(all_finite(h), f"{name}: is not finite at ±1e4")
    alone, slopes = jax.vmap(jax.value_and_grad(lambda one: activation(one)))(a.ravel())
    demand(np.allclose(alone, h.ravel(), atol=1e-6), f"{name}: does not work element by element")
    demand(all_finite(slopes), f"{name}: a slope is not finite")
    told = activation.slope_at(alone)
    demand(told is None or np.allclose(told, slopes, atol=1e-6), f"{name}: `slope_at` is not the slope")
    demand(activation.gain() > 0, f"{name}: the gain must be positive")


def inputs_for(model: AbstractModel) -> tuple[int, ...]:
    """The shape of an example that a model is checked with."""
    return {Recurrent: (6, 2), Recursive: (6, 4)}.get(type(model), (6,))


def check_model(model: AbstractModel, inputs: tuple[int, ...] = (6,), outputs: int = 3) -> None:
    """Built from the key alone; deterministic without a key; every example for itself; finite gradients."""
    name = type(model).__name__
    build = eqx.filter_jit(lambda: model.build(inputs, outputs, key=jr.key(0)))
    network = build()
    demand(eqx.tree_equal(network, build()), f"{name}: one key, two networks")
    examples = jnp.asarray(np.random.default_rng(1).normal(size=(5, *inputs)), jnp.float32)
    many = eqx.filter_jit(lambda network, rows: apply_batch(network, rows, None))
    together = many(network, examples)
    demand(together.shape == (5, outputs), f"{name}: {outputs} outputs are asked; got shape {together.shape[1:]}")
    again = eqx.filter_jit(
        lambda network, rows: apply_batch(network, rows, None)
    )  # another trace, not the same program
    demand(np.array_equal(together, again(network, examples)), f"{name}: without a key it is random")
    alone = np.stack([many(network, example[None])[0] for example in examples])
    demand(np.allclose(together, alone, atol=1e-5), f"{name}: an output depends on the other examples of the call")

    moves, rest = trainable(network)
    demand(jax.tree.leaves(moves), f"{name}: has nothing to train")

    @jax.jit
    @jax.grad
    def slope(parameters: PyTree) -> jax.Array:
        return jnp.mean(apply_batch(eqx.combine(parameters, rest), examples, jr.key(2)) ** 2)

    demand(all_finite(slope(moves)), f"{name}: a gradient is not finite")


def check_batches(batches: AbstractBatches, count: int = 10, epochs: int = 3) -> None:
    """Each example once an epoch, ages in examples, real examples in unused slots, every update computed for itself."""
    name = type(batches).__name__
    size = min(batches.size, count)
    each = -(-count // size)
    numbers = jnp.arange(epochs * each)

    @jax.jit
    def deal(numbers: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return batches.indices(numbers, count, key=jr.key(3))

    rows, present, ages = map(np.asarray, deal(numbers))
    demand(rows.shape == (epochs * each, size), f"{name}: must give {size} examples an update; got {rows.shape}")
    demand(rows.min() >= 0 and rows.max() < count, f"{name}: an index leaves 0 ... {count - 1}")
    for epoch in range(epochs):
        part = slice(epoch * each, (epoch + 1) * each)
        seen = np.sort(rows[part][present[part] == 1])
        demand(np.array_equal(seen, np.arange(count)), f"{name}: epoch {epoch} does not visit each example once")
    demand(np.array_equal(ages, np.cumsum(present.sum(1))), f"{name}: ages are not the examples visited so far")
    middle = epochs * each // 2
    alone = deal(numbers[middle : middle + 1])
    demand(np.array_equal(alone[0][0], rows[middle]), f"{name}: an update asked for alone has other examples")
    told = [batches.examples_seen(number, count) for number in numbers]
    right = [int(one) for one in told if one is not None] in ([], ages.tolist())
    demand(right, f"{name}: `examples_seen` must be the age after each update, or None; got {told}")
    limit = batches.limit_examples(count)
    demand(limit is None or limit >= 1, f"{name}: the limit must be an age or None; got {limit}")


# --- all of it

_CHECKS: tuple[tuple[type, Any], ...] = (
    (AbstractOptimiser, check_optimiser),
    (AbstractSchedule, check_schedule),
    (AbstractLoss, check_loss),
    (AbstractPenalty, check_penalty),
    (AbstractSparsity, check_sparsity),
    (AbstractActivation, check_activation),
    (AbstractModel, lambda model: check_model(model, inputs_for(model))),
    (AbstractBatches, check_batches),
)


def check_part(part: Spec, classes: tuple[type, ...] = ()) -> None:
    """`check_spec`, and the check of each kind of part that this one is."""
    check_spec(part, classes)
    for kind, check in _CHECKS:
        if isinstance(part, kind):
            check(part)


def public_specs(*packages: ModuleType) -> list[type[Spec]]:
    """Every public spec class that can be made, of these packages or modules, in the order of their names."""
    modules = []
    for package in packages:
        inside = pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + ".")
        modules += [package, *(importlib.import_module(found.name) for found in inside)]
    found = {
        thing
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and issubclass(thing, Spec) and thing.__module__ == module.__name__
    }
    chosen = [kind for kind in found if not inspect.isabstract(kind) and not kind.__name__.startswith("_")]
    return sorted(chosen, key=lambda kind: (kind.__module__, kind.__name__))
