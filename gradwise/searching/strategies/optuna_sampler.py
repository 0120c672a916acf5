"""Model-based search by any sampler of Optuna (row E14), and the map from our priors to Optuna's distributions.

    OptunaSampler()                                   the tree-structured Parzen estimator
    OptunaSampler("cmaes")                            adaptation of a covariance matrix
    OptunaSampler("NSGAIISampler", startup=20)        any class of `optuna.samplers`, by its name

| our prior | Optuna's parameters |
|---|---|
| Uniform, LogUniform | a float of that name, linear or logarithmic |
| LogInteger | a logarithmic int |
| Choice | a category by label; values of weight 0 are left out, other weights Optuna cannot tell |
| ZeroOr | a category `NAME.on`, and the other prior under NAME only where it is on |

The sampler is made anew for every question, seeded by (key, number) and told the whole history, so that nothing is
remembered outside the history. The first `startup` trials are those of `Random`.
"""

import contextlib
import importlib.util
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax.random as jr
from jaxtyping import Array, Key

from ...records.trial import Proposal, Trial
from ...runtime.errors import RequestError, nearest
from ...runtime.keys import generator, named
from ...specs.knobs import Spec, switch
from ...specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr
from ...specs.search_space import Dimension, Space, label, read_at, write_at
from .contract import AbstractStrategy, History
from .random_search import LEARNED_FROM, chosen_values, learned_from, random_points

_SHORT = {
    "tpe": "TPESampler",
    "cmaes": "CmaEsSampler",
    "nsgaii": "NSGAIISampler",
    "random": "RandomSampler",
    "qmc": "QMCSampler",
}
_NEEDS = {"GPSampler": "torch", "CmaEsSampler": "cmaes"}
# Passed where the sampler has an argument of that name. Groups let the Parzen estimator model conditional knobs.
_OPTIONS = {"multivariate": True, "group": True, "warn_independent_sampling": False}


def words(prior: Choice) -> dict[str | bool | int | float, Any]:
    """The values of a choice that can come up, by label; two values with one label get a number behind it."""
    found: dict[str | bool | int | float, Any] = {}
    for place, value in enumerate(prior.values):
        if prior.weights and prior.weights[place] == 0:
            continue
        word = label(value)
        word = word if isinstance(word, (str, bool, int, float)) else str(word)
        # `True` and 1 are one key of a dictionary, and parts may differ where their label does not look.
        found[f"{word} #{place + 1}" if word in found else word] = value
    return found


def _distribution(prior: AbstractPrior) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(prior, Uniform):
        return FloatDistribution(prior.low, prior.high)
    if isinstance(prior, LogUniform):
        return FloatDistribution(prior.low, prior.high, log=True)
    if isinstance(prior, LogInteger):
        return IntDistribution(prior.low, prior.high, log=True)
    if isinstance(prior, Choice):
        return CategoricalDistribution(tuple(words(prior)))
    raise RequestError(f"the prior {type(prior).__name__} has no equivalent in Optuna.")


def _parameters(dimension: Dimension) -> dict[str, Any]:
    """The distributions of one dimension by name, the switch of a `ZeroOr` first."""
    from optuna.distributions import CategoricalDistribution

    switched = {f"{dimension.path}.on": CategoricalDistribution((False, True))}
    return {
        **(switched if isinstance(dimension.prior, ZeroOr) else {}),
        dimension.path: _distribution(dimension.scale),
    }


def distributions(space: Space) -> dict[str, Any]:
    """Optuna's distributions of a whole space, by parameter name; a trial has those of its active knobs."""
    return {name: found for dimension in space.dimensions for name, found in _parameters(dimension).items()}


def _same(item: Any, value: Any) -> bool:
    """Whether a value, or a trial's word for it, is this item of a choice; `True` is not 1."""
    if item is value or (type(item) is type(value) and bool(item == value)):
        return True
    told = label(item)
    return bool(told == value) and isinstance(told, bool) == isinstance(value, bool)


def _with_knobs(space: Space, path: str, item: Any, values: Mapping[str, Any]) -> Any:
    """A part of a choice with the knobs within it as the trial has them: they are dimensions of their own."""
    for inner in space.dimensions if isinstance(item, Spec) else ():
        if inner.path in values and inner.path.startswith(f"{path}."):
            value = values[inner.path]
            if isinstance(inner.scale, Choice):
                value = words(inner.scale)[_word(space, inner, values)]
            item = write_at(item, inner.path.removeprefix(f"{path}."), value)
    return item


def _word(space: Space, dimension: Dimension, values: Mapping[str, Any]) -> Any:
    """The word for the value of a choice."""
    assert isinstance(dimension.scale, Choice)
    known, value = words(dimension.scale), values[dimension.path]
    for word, item in known.items():
        if _same(item, value) or (isinstance(value, str) and word == value):
            return word
    for word, item in known.items():
        if _same(_with_knobs(space, dimension.path, item, values), value):
            return word
    told = ", ".join(map(str, known))
    raise RequestError(f"{label(value)!r} is not one of the values of `{dimension.path}`: {told}.")


def to_params(space: Space, values: Mapping[str, Any]) -> dict[str, Any]:
    """Optuna's parameters for the values of the active dimensions, given as they are or as a trial's words.

    A value beyond its prior's ends is told as it is: Optuna refuses it, `fits_distributions` finds it.
    """
    params: dict[str, Any] = {}
    for dimension in space.dimensions:
        if dimension.path not in values:
            continue
        value = values[dimension.path]
        if isinstance(dimension.prior, ZeroOr):
            params[f"{dimension.path}.on"] = bool(value != 0)
            if value == 0:
                continue
        scale = dimension.scale
        if isinstance(scale, Choice):
            params[dimension.path] = _word(space, dimension, values)
        else:
            params[dimension.path] = int(value) if isinstance(scale, LogInteger) else float(value)
    return params


def from_params(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """The values by path, ready for `Space.recipe_of`, of Optuna's parameters."""
    values: dict[str, Any] = {}
    for dimension in space.dimensions:
        path, scale = dimension.path, dimension.scale
        if params.get(f"{path}.on") is False:
            values[path] = 0.0
        elif path in params:
            values[path] = words(scale)[params[path]] if isinstance(scale, Choice) else params[path]
    return values


def fits_distributions(known: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether Optuna would take these parameters under these distributions."""
    return all(known[name]._contains(known[name].to_internal_repr(value)) for name, value in params.items())


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna without its log and its warnings of what is experimental; both are as before afterwards."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _sampler_class(name: str) -> Any:
    import optuna

    full = _SHORT.get(name, name)
    known = [item for item in optuna.samplers.__all__ if item.endswith("Sampler") and not item.startswith("Base")]
    if full not in known:
        raise RequestError(f"unknown Optuna sampler {name!r}.{nearest(name, [*_SHORT, *known])}")
    needed = _NEEDS.get(full)
    if needed and importlib.util.find_spec(needed) is None:
        raise RequestError(f"the sampler {name!r} needs the package `{needed}`: install it, or use the sampler 'tpe'.")
    return getattr(optuna.samplers, full)


def _told(space: Space, trials: list[Trial], running: list[tuple[int, Proposal]]) -> list[tuple[int, dict, Any]]:
    """What Optuna is told, by number: parameters, and the value; "running" or "failed" where there is none.

    A diverged trial is told with the worst score of those that did not: as a failure it would be left out, and the
    sampler would go there again. A failed one (a lost worker, a full disk) says nothing of its recipe. Trials that
    lie outside the present space are left out.
    """
    known = distributions(space)
    ambiguous = any(
        isinstance(d.scale, Choice) and len({label(v) for v in d.scale.values}) < len(d.scale.values)
        for d in space.dimensions
    )
    worst = max((trial.score for trial in trials if trial.ok), default=1.0)
    found: list[tuple[int, dict[str, Any], Any]] = []
    for trial in trials:
        values = space.values(trial.recipe) if ambiguous else trial.values
        value: Any = trial.score if trial.ok else "failed" if trial.outcome == "failed" else worst
        found.append((trial.number, dict(values), value))
    for number, proposal in running:
        values = space.values(proposal.recipe) if ambiguous else chosen_values(space, proposal.recipe)
        found.append((number, values, "running"))
    told = []
    for number, values, value in sorted(found, key=lambda item: item[0]):
        try:
            params = to_params(space, values)
        except RequestError:
            continue  # a word that the space no longer has
        if fits_distributions(known, params):
            told.append((number, params, value))
    return told


def _suggest(trial: Any, space: Space) -> Any:
    """The recipe for a trial of Optuna, asked for active knobs only, parts before what lies within them."""
    recipe = space.recipe
    for dimension in space.dimensions:
        if not read_at(recipe, dimension.path)[0]:
            continue
        params = {}
        for name, known in _parameters(dimension).items():
            kind = type(known).__name__
            if kind == "CategoricalDistribution":
                params[name] = trial.suggest_categorical(name, known.choices)
            elif kind == "IntDistribution":
                params[name] = trial.suggest_int(name, known.low, known.high, log=known.log)
            else:
                params[name] = trial.suggest_float(name, known.low, known.high, log=known.log)
            if params[name] is False and name != dimension.path:
                break  # off: the value itself is not asked for
        recipe = write_at(recipe, dimension.path, from_params(space, params)[dimension.path])
    return recipe


class OptunaSampler(AbstractStrategy):
    """The next trials by a sampler of Optuna: learns from the ended ones, keeps away from the running ones."""

    sampler: str = switch("tpe", row="E14", about="tpe, cmaes, or the name of a class in optuna.samplers")
    startup: int = switch(10, allowed="[1, inf)", row="E14", about="trials drawn from the priors before the model")
    options: tuple[tuple[str, Any], ...] = switch((), row="E14", about="more arguments of the sampler, as pairs")

    def _made(self, number: int, key: Key[Array, ""], **started: Any) -> Any:
        """The sampler for trial `number`."""
        kind = _sampler_class(self.sampler)
        taken = inspect.signature(kind.__init__).parameters
        seed = int(generator(jr.fold_in(named(key, "bridge"), number)).integers(2**31))
        ours = {"seed": seed, "n_startup_trials": 1, **_OPTIONS, **started}
        try:
            return kind(**{**{name: value for name, value in ours.items() if name in taken}, **dict(self.options)})
        except TypeError as problem:
            raise RequestError(f"the sampler {self.sampler!r} cannot be created: {problem}.") from None

    def _replayed(self) -> bool:
        """Whether the sampler keeps its state in the trials it proposed, so that each must be asked for again."""
        import optuna

        return issubclass(_sampler_class(self.sampler), optuna.samplers.BaseGASampler)

    def _started_from(self, study: Any) -> dict[str, Any]:
        """CMA-ES begins from the best of the trials there are (its warm start): so it needs no memory of its own."""
        import optuna

        if not issubclass(_sampler_class(self.sampler), optuna.samplers.CmaEsSampler):
            return {}
        done = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        return {"source_trials": done} if done else {}

    def _tell(self, study: Any, space: Space, told: list[tuple[int, dict, Any]], key: Key[Array, ""]) -> None:
        """Adds what is known to a study in memory."""
        import optuna

        states = optuna.trial.TrialState
        known, replayed = distributions(space), self._replayed()
        for number, params, value in told:
            state = {"failed": states.FAIL, "running": states.RUNNING}.get(str(value), states.COMPLETE)
            score = value if state == states.COMPLETE else None
            own = {name: known[name] for name in params}
            if not replayed:
                study.add_trial(optuna.trial.create_trial(state=state, value=score, params=params, distributions=own))
                continue
            study.sampler = self._made(number, key)
            study.enqueue_trial(params)
            again = study.ask(own)
            if state != states.RUNNING:
                study.tell(again, score, state=state)

    def _asked(self, study: Any, space: Space, number: int, key: Key[Array, ""]) -> Proposal:
        """The proposal for one number; the study then knows it as running."""
        import optuna

        study.sampler = self._made(number, key, **self._started_from(study))
        trial = study.ask()
        proposal = Proposal(_suggest(trial, space))
        if not self._replayed():
            # Told anew as what became of it: the sampler's own notes hold knobs that were not active in the end, and
            # three asked for at once would differ from three asked for one by one.
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            self._tell(study, space, _told(space, [], [(number, proposal)]), key)
        return proposal

    def ask(self, space: Space, history: History, count: int, *, key: Key[Array, ""]) -> list[Proposal]:
        import optuna

        _sampler_class(self.sampler)  # refused at once, not after the first trials
        trials = learned_from(history)
        numbers = range(history.next, history.next + count)
        if sum(trial.ok for trial in trials) < self.startup or not space.dimensions:
            return [Proposal(space.recipe_at(point)) for point in random_points(space, numbers, key)]
        running = [(number, proposal) for number, proposal in history.running if proposal.phase in LEARNED_FROM]
        with quiet_optuna():
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
            self._tell(study, space, _told(space, trials, running), key)
            return [self._asked(study, space, number, key) for number in numbers]
