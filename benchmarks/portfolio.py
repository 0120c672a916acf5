"""Which recipes should a search of a table try first? Chooses the portfolio that gradwise ships, on development tables.

    GRADWISE_DATA=... python benchmarks/portfolio.py --train --out DIR      every recipe of the pool on every table
    python benchmarks/portfolio.py --choose --out DIR                       the list, written to gradwise/portfolio.json

Each recipe of the pool is trained on five folds of each development table's training rows; what its networks predict
of rows that they did not learn from, and of the fifth of the table that is kept for judging, is written down. Then
recipes enter the list one after another: each time the one that lowers, on average over the tables, the logarithm of
the loss that the ensemble of the list has on the judged rows: log-loss, which has less luck in it than errors, or root
mean squared error. The ensemble is weighed as a search weighs it, by rows of the folds alone. A recipe that needs a
program of its own has to be better by what compiling costs.

Networks that share their weights (TabM) are not in the pool: an update costs as many times as much as there are
members, and on four small tables eight members were no better than others (0.88 to 1.11 of the recommended recipe's
error, 1.03 on average).

Several processes may train side by side: each takes what no other has begun. A run that was killed goes on, once
DIR/*.begun is deleted.
"""

import argparse
import datetime
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from table_sets import HALVES, LARGE, Part, split

LENGTH = 12  # at the most
_FOLDS = 5
_PROGRAM = 0.005  # by how much a recipe that needs a program of its own has to be better, in the mean logarithm
_LEAST_GAIN = 0.001  # of an entry; with less the list ends
_AT_ONCE = 3  # recipes that one process trains before it looks for other work
_TARGET = Path(__file__).parents[1] / "gradwise" / "portfolio.json"


def pool() -> dict[str, list[dict[str, Any]]]:
    """Programs by name, and the recipes of each: as it is, and with other knobs."""
    rate, decay, smoothing = (
        "optimiser.optimiser.learning_rate",
        "optimiser.optimiser.decay",
        "criterion.loss.label_smoothing",
    )
    slow = {"times": {rate: 0.5}, "set": {"model.dropout": 0.05}}
    fast = {"times": {rate: 1.7}, "set": {"model.dropout": 0.3, decay: 0.05}}
    sharp = {"set": {smoothing: 0.0, "model.dropout": 0.1, decay: 0.01}}
    embedding = "model.inputs.numbers"

    def of(name: str, **knobs: Any) -> dict[str, Any]:
        return {"class": f"gradwise:{name}", **knobs}

    def joined(*several: dict[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for one in several:
            for key, value in one.items():
                merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
        return merged

    base = [
        slow,
        fast,
        sharp,
        {"times": {rate: 0.5}},
        {"times": {rate: 2.0}},
        {"set": {"model.inputs.numbers.deviation": 0.3}},
        {"set": {"model.inputs.numbers.deviation": 0.04, decay: 0.05}},
        {"set": {"model.dropout": 0.0, decay: 0.0, smoothing: 0.0}},
        {"set": {"model.dropout": 0.35, decay: 0.1}},
        {"times": {"stopping.epochs": 2.0}},
        {"times": {"stopping.epochs": 2.0, rate: 0.6}, "set": {"model.dropout": 0.25}},
        {"times": {"stopping.epochs": 0.5}},
    ]
    structures = {
        "piecewise": {"set": {embedding: of("PiecewiseLinear", bins=32, size=5)}},
        "rectified waves": {"set": {embedding: of("PeriodicRectified", frequencies=16, size=8, deviation=0.3)}},
        "no embedding": {"set": {embedding: of("NoEmbedding")}},
        "wide": {"times": {"model.widths.each": 2}},
        "two layers": {"set": {"model.widths.count": 2}},
        "four residual": {"set": {"model.widths.count": 4, "model.residual": True}},
        "gelu": {"set": {"model.activation": of("Parametric", activation=of("Gelu"))}},
    }
    near = [{}, fast]
    return {"base": [{}, *base], **{name: [joined(one, how) for how in near] for name, one in structures.items()}}


def listed() -> list[tuple[str, dict[str, Any]]]:
    return [(program, entry) for program, entries in pool().items() for entry in entries]


def work(sets: list[str]) -> list[tuple[str, list[int]]]:
    """Tables with places of recipes that share a program, a few each."""
    programs = [program for program, _ in listed()]
    found = []
    for name in sets:
        for program in dict.fromkeys(programs):
            places = [n for n, one in enumerate(programs) if one == program]
            found += [(name, places[start : start + _AT_ONCE]) for start in range(0, len(places), _AT_ONCE)]
    return found


def train(name: str, places: list[int], out: Path) -> None:
    """Some recipes of the pool on one table; what their networks predict, written down."""
    import gradwise
    from gradwise import defaults
    from gradwise.portfolio import with_entry
    from gradwise.runtime import keys
    from gradwise.searching.running.device_runner import train_alone
    from gradwise.searching.running.evaluation_data import EvaluationData
    from gradwise.searching.running.jobs import Job

    part = split(name, 0)
    estimator = (gradwise.AutoRegressor if part.kind == "numbers" else gradwise.AutoClassifier)(random_state=0)
    dataset = estimator._dataset(part.train, part.train_targets, None, first=True)
    judged, _ = estimator._read_inputs(part.test, first=False)
    recipe = defaults.for_search(dataset, split=estimator._split(len(dataset)))
    metric = {"numbers": "rmse"}.get(part.kind, "error_rate")
    data = EvaluationData.of(dataset, recipe.split, metric=metric, folds=_FOLDS, key=keys.from_seed(0))
    recipes = {place: with_entry(recipe, listed()[place][1]) for place in places}
    jobs = [
        Job(place * 64 + fold, one, place, variant=("fold", fold))
        for place, one in recipes.items()
        for fold in range(_FOLDS)
    ]
    begun = time.perf_counter()
    done = {one.number: one for one in train_alone(data, jobs, varying=defaults.search_space(recipe).paths)}
    took = time.perf_counter() - begun
    for place in places:
        own = [done[place * 64 + fold] for fold in range(_FOLDS)]
        bad = next((f"{one.outcome} {one.reason}" for one in own if one.network is None), "")
        kept, test = ({}, {}) if bad else _predictions(own, recipes[place], data, judged)
        np.savez_compressed(
            out / f"{name}-{place}.npz",
            folds=kept,
            tests=test,
            targets=np.asarray(data.pool.targets),
            judged=_encoded(estimator, part),
            entry=json.dumps(listed()[place][1], sort_keys=True),
            bad=bad,
        )
    print(f"{name} {listed()[places[0]][0]} {len(jobs)} networks in {took:.0f} s", flush=True)


def _predictions(own: list[Any], recipe: Any, data: Any, judged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the networks of a trial predict of rows that they did not learn from, and of the judged ones together."""
    from gradwise.training.predictor import Predictor, outputs_of

    task = data.train.task
    about = (recipe.criterion, 1.0, *data.units, task, data.train.columns, data.train.shape)
    kept = np.zeros((len(data.pool), task.outputs), np.float32)
    test = []
    for fold, one in enumerate(own):
        rows = data.judged_rows(("fold", fold))
        scaler = data.scaler(recipe.scaler, ("fold", fold))
        predictor = Predictor(scaler, one.network, *about)
        kept[rows] = predictor.from_outputs(np.asarray(one.outputs[: len(rows)], float))
        test.append(np.asarray(predictor.from_outputs(outputs_of(one.network, scaler.apply(judged)))))
    return kept, np.mean(test, axis=0).astype(np.float32)


def _encoded(estimator: Any, part: Part) -> np.ndarray:
    """The judged targets as predictions have them: places of classes, labels, or numbers."""
    if part.kind == "classes":
        return np.searchsorted(estimator.classes_, part.test_targets)
    return np.asarray(part.test_targets)


class Table:
    """One table's predictions, by recipe."""

    def __init__(self, name: str, out: Path):
        self.name = name
        self.folds: dict[int, np.ndarray] = {}
        self.tests: dict[int, np.ndarray] = {}
        for place, (_, entry) in enumerate(listed()):
            with np.load(out / f"{name}-{place}.npz") as stored:
                if str(stored["entry"]) != json.dumps(entry, sort_keys=True):
                    raise SystemExit(f"{out} holds another pool's predictions: train into another folder.")
                if not str(stored["bad"]):
                    self.folds[place], self.tests[place] = stored["folds"], stored["tests"]
                self.targets, self.judged = stored["targets"], stored["judged"]
        self.kind = "numbers" if name.startswith("reg_") else "labels" if self.judged.ndim > 1 else "classes"

    def loss(self, chosen: list[int]) -> float:
        """The logarithm of the loss that the ensemble of these recipes has on the judged rows."""
        from gradwise.searching.selection.ensemble import select_weights, weighted_mean

        whole = [place for place in chosen if place in self.folds]
        folds, tests = (np.stack([several[place] for place in whole]) for several in (self.folds, self.tests))
        mean = weighted_mean(tests, select_weights(folds, self.targets, kind=self.kind, seed=0))
        if self.kind == "numbers":
            return float(0.5 * np.log(np.mean((mean - self.judged.reshape(mean.shape)) ** 2)))
        chances = np.clip(mean, 1e-7, 1 - 1e-7)
        if self.kind == "labels":
            return float(np.log(-np.mean(np.log(np.where(self.judged > 0.5, chances, 1 - chances)))))
        return float(np.log(-np.mean(np.log(chances[np.arange(len(mean)), self.judged]))))


def choose(out: Path) -> None:
    """The list, greedily; what each entry gained is told and written beside it."""
    count = len(listed())
    names = [one for one in HALVES["development"] if all((out / f"{one}-{n}.npz").is_file() for n in range(count))]
    tables = [Table(name, out) for name in names]
    entries = listed()
    programs = [program for program, _ in entries]
    chosen, known = [0], {"base"}
    before = np.array([table.loss(chosen) for table in tables])
    first, told = before, []
    for _ in range(LENGTH):
        found = {n: np.array([t.loss([*chosen, n]) for t in tables]) for n in range(len(entries)) if n not in chosen}
        cost = {n: found[n].mean() + (0 if programs[n] in known else _PROGRAM) for n in found}
        best = min(cost, key=lambda n: cost[n])
        gain = 1 - np.exp(found[best].mean() - before.mean())
        if gain < _LEAST_GAIN:
            break
        chosen.append(best)
        known.add(programs[best])
        told.append({**entries[best][1], "program": programs[best], "gain": round(float(gain), 4)})
        before = found[best]
        print(f"{programs[best]:20} {json.dumps(entries[best][1]):120} {100 * gain:5.2f} %", flush=True)
    all_of_them = np.mean([table.loss(list(range(len(entries)))) for table in tables])
    print(
        f"the list: {np.exp((before - first).mean()):.3f} of the recommended recipe's loss; all {len(entries)}: ",
        end="",
    )
    print(f"{np.exp(all_of_them - first.mean()):.3f}")
    print({t.name: round(float(np.exp(b - f)), 3) for t, b, f in zip(tables, before, first, strict=True)})
    source = {
        "made": "python benchmarks/portfolio.py",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "tables": [table.name for table in tables],
        "loss of the list's ensemble, of the recommended recipe's": round(float(np.exp((before - first).mean())), 4),
        "pool": len(entries),
    }
    lines = ",\n  ".join(json.dumps(one) for one in told)
    head = json.dumps(source, indent=1).removesuffix("\n}")
    _TARGET.write_text(f'{head},\n "entries": [\n  {lines}\n ]\n}}\n')


def claim(path: Path) -> bool:
    """Whether nobody has begun this piece of work; from now on somebody has."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--sets", type=lambda text: text.split(","))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sets = options.sets or [name for name in HALVES["development"] if name not in LARGE]
    for name, places in work(sets) if options.train else ():
        missing = [place for place in places if not (options.out / f"{name}-{place}.npz").is_file()]
        if missing and claim(options.out / f"{name}-{missing[0]}.begun"):
            train(name, missing, options.out)
    if options.choose:
        choose(options.out)


if __name__ == "__main__":
    main()
