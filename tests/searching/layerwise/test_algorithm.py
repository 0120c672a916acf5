"""Algorithm 1 against a naive reference that trains everything again, and against its own count of trainings."""

import dataclasses
import itertools
import math
import os
import signal
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradwise import defaults
from gradwise.criteria.corruption import Masking
from gradwise.criteria.linear_probe import Probed, Ridge, probe_scores
from gradwise.criteria.reconstruction import Reconstruction
from gradwise.curvature.objective import Examples
from gradwise.data.batches import Reshuffled
from gradwise.data.scaling import NoScaling, UnitRange
from gradwise.data.splits import HoldOut
from gradwise.models.auto_encoder import MlpAutoEncoder
from gradwise.models.mlp import Mlp
from gradwise.optimisers.first_order.sgd import Sgd
from gradwise.pretraining.layer_recipes import learner
from gradwise.pretraining.stack import hidden_layers, with_output
from gradwise.records.evidence.fit_evidence import LayerTraining
from gradwise.runtime import keys
from gradwise.runtime.errors import RequestError
from gradwise.searching.layerwise import algorithm
from gradwise.searching.layerwise.algorithm import Layerwise, draw_settings, layerwise, trainings_of
from gradwise.searching.running import cohort, executor_choice
from gradwise.searching.running.cohort import Cohort
from gradwise.searching.storage.job_checkpoints import RunningJobs
from gradwise.specs.dataset import Classes, Dataset
from gradwise.specs.priors import LogUniform
from gradwise.specs.search_space import Dimension, Space
from gradwise.training.loop import RunOptions, run_intervals
from gradwise.training.state import init
from gradwise.training.stopping import Off

_STOPPING = Off(epochs=3.0)


def _data() -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Dataset(digits.data[:400], digits.target[:400], Classes(np.arange(10)))


def _level(rate: float, noise: float, units: int = 20) -> object:
    recipe = learner("denoising", units)
    return dataclasses.replace(
        recipe,
        criterion=Reconstruction(corruption=Masking(noise)),
        optimiser=Sgd(learning_rate=rate),
        batches=Reshuffled(size=20),
        stopping=_STOPPING,
    )


def _fine(rate: float) -> object:
    return defaults.classification(
        split=HoldOut(valid=0.25, test=0.25),
        scaler=UnitRange(together=True),
        model=Mlp(widths=(), dropout=0.0),
        optimiser=Sgd(learning_rate=rate),
        batches=Reshuffled(size=20),
        stopping=_STOPPING,
    )


WIDTHS = [[20, 12, 20], [12, 20]]
LEVELS = [
    [_level(0.02, 0.1, 20), _level(0.1, 0.3, 12), _level(0.3, 0.2, 20)],
    [_level(0.02, 0.1, 12), _level(0.2, 0.2, 20)],
]
FINE = [_fine(0.05), _fine(0.3)]
KEEP = 2


@pytest.fixture(scope="module")
def found() -> Layerwise:
    return layerwise(LEVELS, FINE, _data(), keep=KEEP, key=keys.from_seed(3))


class _Naive:
    """The algorithm as nested loops: every stack is trained from the ground up each time, nothing is shared."""

    def __init__(self) -> None:
        self.key = keys.from_seed(3)
        data = _data()
        train, valid, _ = FINE[0].split(data, key=keys.named(self.key, "split"))
        scaler = FINE[0].scaler.fit(train.inputs, ())
        self.parts = [
            Examples(jnp.asarray(scaler.apply(part.inputs)), jnp.asarray(part.targets, jnp.int32))
            for part in (train, valid)
        ]
        self.count = 0

    def trained(self, recipe, inputs, number):
        self.count += 1
        parts = [Examples(x, part.targets) for x, part in zip(inputs, self.parts, strict=True)]
        problem, state = init(recipe, *parts, outputs=10, key=keys.of_trial(self.key, number))
        state, history, _, _ = run_intervals(problem, state, RunOptions(), "")
        network = eqx.combine(state.best, problem.rest)
        best = max(n for n, better in enumerate(history["best"]) if better)
        return network, history["valid_score"][best]

    def codes(self, layers):
        inputs = [part.inputs for part in self.parts]
        for layer in layers:
            inputs = [jax.vmap(lambda x, one=layer: one(x, key=None))(x) for x in inputs]
        return inputs

    def level(self, recipe, layers, number):
        judged = dataclasses.replace(
            recipe, scaler=NoScaling(), criterion=Probed(recipe.criterion, Ridge(), classes=10)
        )
        network, _ = self.trained(judged, self.codes(layers), number)
        layers = (*layers, *hidden_layers(network, 0))
        score, _ = probe_scores(Ridge(), tuple(self.codes(layers)), tuple(p.targets for p in self.parts), 10)
        return layers, float(jnp.mean(score))

    def algorithm(self):
        kept, number, tried = [((), ())], 0, []
        for settings in LEVELS:
            pushed = []
            for (c, recipe), (numbers, layers) in itertools.product(enumerate(settings), kept):
                new, score = self.level(recipe, layers, number)
                pushed.append((score, (*numbers, c), new))
                tried.append(((*numbers, c), score))
                number += 1
            kept = [(numbers, layers) for _, numbers, layers in sorted(pushed, key=lambda one: one[0])[:KEEP]]
        pushed = []
        for (c, recipe), (numbers, layers) in itertools.product(enumerate(FINE), kept):
            output = keys.named(keys.of_trial(self.key, number), "output")
            network = with_output(layers, 10, recipe.model, key=output)
            tuned = dataclasses.replace(recipe, model=network, scaler=NoScaling())
            _, score = self.trained(tuned, [part.inputs for part in self.parts], number)
            pushed.append((score, (*numbers, c)))
            tried.append(((*numbers, c), score))
            number += 1
        return tried, [numbers for _, numbers in sorted(pushed, key=lambda one: one[0])[:KEEP]]


@pytest.mark.slow
def test_results_and_counts_are_those_of_the_naive_algorithm(found: Layerwise) -> None:
    naive = _Naive()
    tried, best = naive.algorithm()
    assert len(found.trainings) == naive.count == trainings_of(LEVELS, len(FINE), KEEP) == 3 + 2 * 2 + 2 * 2
    by_number = sorted(found.trainings, key=lambda one: one.number)
    assert [one.numbers for one in by_number] == [numbers for numbers, _ in tried]
    # Populations and single trainings round differently: an example of 100 near a border may fall on the other side.
    np.testing.assert_allclose([one.score for one in by_number], [score for _, score in tried], atol=0.021)
    assert [one.numbers for one in found.kept] == best


def test_kept_configurations_are_the_best_of_their_level_and_fine_tuning_is_a_set_of_its_own(found: Layerwise) -> None:
    for level, kept in enumerate(found.by_level, start=1):
        scores = sorted(one.score for one in found.trainings if one.level == level)
        assert [one.score for one in kept] == scores[:KEEP]
        assert all(one.depth == level and len(one.probes) == level for one in kept)
    tuned = sorted(one.score for one in found.trainings if one.level == 3)
    assert [one.score for one in found.kept] == tuned[:KEEP]
    # Both of the lowest level's kept configurations were read by every setting of the next: a snapshot.
    second = {one.numbers[0] for one in found.trainings if one.level == 2}
    assert second == {one.numbers[0] for one in found.by_level[0]}


def test_each_level_has_widths_of_its_own_on_layers_that_are_never_trained_again(found: Layerwise) -> None:
    for level in found.by_level:
        for one in level:
            widths = [WIDTHS[depth][number] for depth, number in enumerate(one.numbers)]
            assert [layer.weight.shape for layer in one.layers] == list(zip(widths, [64, *widths], strict=False))
    below = {one.numbers: one.layers[0] for one in found.by_level[0]}
    assert all(eqx.tree_equal(one.layers[0], below[one.numbers[:1]]) for one in found.by_level[1])
    assert [layer.weight.shape[0] for layer in found.best.network.layers] == [
        WIDTHS[depth][number] for depth, number in enumerate(found.best.numbers[:2])
    ]


@pytest.mark.slow
def test_shallower_stacks_compete_on_request() -> None:
    key = keys.from_seed(3)
    short = layerwise([LEVELS[0][:2], LEVELS[1][:1]], FINE[:1], _data(), keep=1, shallower=True, key=key)
    depths = {len(one.numbers) - 1 for one in short.trainings if one.level == 3}
    assert depths == {1, 2}
    assert len(short.trainings) == trainings_of([LEVELS[0][:2], LEVELS[1][:1]], 1, 1, shallower=True) == 2 + 1 + 2


def test_an_accelerator_builds_learners_of_the_inputs_from_shapes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """These learners look at the values of their inputs before they begin, which a traced start must not hide."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    machine = dataclasses.replace(learner("rbm", 8), batches=Reshuffled(size=20), stopping=Off(epochs=1.0))
    encoder = dataclasses.replace(_level(0.1, 0.2, 8), stopping=Off(epochs=1.0))
    tuning = dataclasses.replace(FINE[0], stopping=Off(epochs=1.0))
    run = layerwise([[encoder, machine]], [tuning], _data(), keep=1, key=keys.from_seed(3))
    assert [one.outcome for one in run.trainings] == ["finished"] * 3


def test_a_run_that_was_killed_goes_on_and_ends_the_same(tmp_path, found: Layerwise) -> None:
    class Killed(Exception):
        pass

    seen: list[LayerTraining] = []

    def watch(training: LayerTraining, total: int) -> None:
        seen.append(training)
        assert total == 11
        if len(seen) == 5:
            raise Killed

    arguments = {"keep": KEEP, "key": keys.from_seed(3), "folder": tmp_path / "shelf"}
    with pytest.raises(Killed):
        layerwise(LEVELS, FINE, _data(), watch=watch, **arguments)
    left = len(list((tmp_path / "shelf").iterdir()))
    assert left >= 4
    again = layerwise(LEVELS, FINE, _data(), **arguments)
    assert [one.numbers for one in again.kept] == [one.numbers for one in found.kept]
    assert [one.score for one in again.kept] == [one.score for one in found.kept]
    assert len(list((tmp_path / "shelf").iterdir())) == 11


@pytest.mark.slow
@pytest.mark.parametrize("deadly", [0, 3, 7], ids=["of the first level", "of the second", "of the fine-tuning"])
def test_a_run_killed_in_the_middle_of_its_trainings_goes_on_with_them(tmp_path, deadly: int, monkeypatch) -> None:
    """Intervals before the kill and after it are, together, those of a run that was left alone."""

    class Killed(BaseException):
        pass

    counts: Counter[int] = Counter()
    read, keep, kills = Cohort._read, RunningJobs.keep, [0]

    def counted(cohort, host, share):
        counts.update(place.job.number for place in cohort.places.values())
        return read(cohort, host, share)

    def killing(running, several) -> None:
        keep(running, several)
        kills[0] -= deadly in {job.number for job, _ in several}
        if kills[0] == 0 and deadly in {job.number for job, _ in several}:
            raise Killed

    monkeypatch.setattr(cohort, "CALL_SECONDS", 0.0)  # one interval a call: a kill falls between two
    monkeypatch.setattr(Cohort, "_read", counted)
    monkeypatch.setattr(RunningJobs, "keep", killing)
    often = Off(epochs=3.0, spacing=1.0, least_examples=1)
    levels = [[dataclasses.replace(one, stopping=often) for one in level] for level in LEVELS]
    fine = [dataclasses.replace(one, stopping=often) for one in FINE]
    arguments = {"keep": KEEP, "key": keys.from_seed(3), "checkpoint_seconds": 0.0}
    left_alone = layerwise(levels, fine, _data(), **arguments)
    whole = Counter(counts)
    counts.clear()
    kills[0] = 2
    shelf = tmp_path / "shelf"
    with pytest.raises(Killed):
        layerwise(levels, fine, _data(), folder=shelf, **arguments)
    assert counts[deadly] == 2
    assert (shelf / "running" / f"{deadly}.safetensors").is_file()
    again = layerwise(levels, fine, _data(), folder=shelf, **arguments)
    assert counts == whole
    assert again.kept[0].numbers == left_alone.kept[0].numbers
    assert [one.score for one in again.kept] == [one.score for one in left_alone.kept]
    assert eqx.tree_equal(again.best.network, left_alone.best.network)
    assert not (shelf / "running").exists()


@pytest.mark.slow
def test_workers_end_as_this_process_does_and_one_that_dies_costs_nothing(monkeypatch, found: Layerwise) -> None:
    """One worker and two agree to the last bit, though one of the two is killed; sums of several cores may round."""
    hired = []

    def hire(*arguments, **options):
        hired.append(executor_choice.choose_executor(*arguments, **options))
        return hired[-1]

    def kill(training: LayerTraining, total: int) -> None:
        if training.number == 4:  # of the second level: the one that takes its place must learn of the codes
            victim = max(hired[-1].workers, key=lambda worker: len(worker.jobs))
            os.kill(victim.process.pid, signal.SIGKILL)

    monkeypatch.setattr(algorithm, "choose_executor", hire)
    arguments = {"keep": KEEP, "key": keys.from_seed(3)}
    one = layerwise(LEVELS, FINE, _data(), on="workers:1", **arguments)
    two = layerwise(LEVELS, FINE, _data(), on="workers:2", watch=kill, **arguments)
    assert hired[1]._made == 3  # two, and the one that took the dead one's place: no level starts its own
    assert [t.number for t in one.trainings] == [t.number for t in two.trainings] == list(range(11))
    assert [t.score for t in one.trainings] == [t.score for t in two.trainings]
    assert eqx.tree_equal(one.best.network, two.best.network)
    assert [c.numbers for c in one.kept] == [c.numbers for c in found.kept]
    np.testing.assert_allclose([t.score for t in one.trainings], [t.score for t in found.trainings], atol=1e-6)


@pytest.mark.slow
def test_a_run_of_workers_that_was_interrupted_keeps_what_ended(tmp_path, found: Layerwise) -> None:
    seen: list[int] = []

    def interrupt(training: LayerTraining, total: int) -> None:
        seen.append(training.number)
        if len(seen) == 5:
            raise KeyboardInterrupt

    arguments = {"keep": KEEP, "key": keys.from_seed(3), "folder": tmp_path / "shelf"}
    with pytest.raises(KeyboardInterrupt):
        layerwise(LEVELS, FINE, _data(), on="workers:2", watch=interrupt, **arguments)
    assert {int(file.stem) for file in (tmp_path / "shelf").glob("*.safetensors")} >= set(seen)
    again = layerwise(LEVELS, FINE, _data(), on="here", **arguments)
    assert [one.numbers for one in again.kept] == [one.numbers for one in found.kept]


def test_settings_can_come_from_priors() -> None:
    space = Space(LEVELS[0][0], (Dimension("optimiser.learning_rate", LogUniform(1e-3, 1.0)),))
    rates = [float(one.optimiser.learning_rate) for one in draw_settings(space, 64, key=keys.from_seed(1))]
    assert len(set(rates)) == 64
    assert 1e-3 <= min(rates) < max(rates) <= 1.0
    assert abs(np.mean(np.log10(rates)) + 1.5) < 0.35  # uniform on the logarithm: mean -1.5, deviation 0.87 / 8


@pytest.mark.slow
def test_requests_that_cannot_be_met_are_refused_in_a_line() -> None:
    key = keys.from_seed(0)
    with pytest.raises(RequestError, match="need at least one setting"):
        layerwise([[]], FINE, _data(), keep=1, key=key)
    with pytest.raises(RequestError, match="`keep` must be at least 1"):
        layerwise(LEVELS, FINE, _data(), keep=0, key=key)
    with pytest.raises(RequestError, match="are learned without the target"):
        layerwise([[FINE[0]]], FINE, _data(), keep=1, key=key)
    wild = dataclasses.replace(LEVELS[0][0], optimiser=Sgd(learning_rate=1e6), criterion=Reconstruction())
    diverging = dataclasses.replace(wild, model=MlpAutoEncoder(widths=(5,)))
    result = layerwise([[diverging, LEVELS[0][1]]], FINE[:1], _data(), keep=2, key=key)
    assert math.isfinite(result.best.score)
