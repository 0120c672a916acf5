"""What the results of `tables.py` say, as Markdown: for the terminal, and for `write_tables.py`.

A result is one fit: its set, seed, model, kind of task, rows judged, error, seconds, processor seconds, and the share
of the cores that other work had meanwhile; its budget is the seconds that it was given, where it was given some. Times
of disturbed fits are left out; errors are not touched by them.

Geometric means compare two models over the sets, and of those over the seeds, that both did. Error rates enter them as
(errors + 1/2) / (rows + 1), summed over seeds, since a rate of 0 has no logarithm; errors of numbers as they are.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from table_models import NO_LABELS, TAKES_SECONDS, TITLES

Result = dict[str, Any]
# What is measured, against which model, and the ratio that is wanted.
TARGETS = (("error", "realmlp", 0.98), ("error", "hist", 0.92), ("cpu_seconds", "realmlp", 0.5))
SEARCH_TARGETS = (
    ("error", "gradwise", 0.90),
    ("error", "realmlp-5", 0.98),
    ("error", "lightgbm-search", 0.85),
    ("error", "autogluon", 1.00),
)
GPU_SEARCH_TARGETS = (("error", "realmlp-5", 0.93), ("error", "lightgbm-search", 0.78))
GPU_TARGET = 15.0
FIELDS = {"error": "error", "seconds": "wall seconds", "cpu_seconds": "CPU seconds"}


def names(results: Sequence[Result], field: str) -> list[str]:
    """What stands in a field, in the order in which it first appears."""
    return list(dict.fromkeys(result[field] for result in results))


def done(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if "failed" not in result]


def disturbed(result: Result) -> bool:
    """Whether other work had more than a tenth of the cores."""
    return bool(result.get("others", 0.0) > 0.1)


def usable(results: Sequence[Result], field: str) -> list[Result]:
    """The results whose field may be compared."""
    return [result for result in done(results) if field == "error" or not disturbed(result)]


def level(results: Sequence[Result], field: str) -> float:
    """What several seeds of one model on one set come to, as it enters a geometric mean."""
    if field != "error" or results[0]["kind"] == "numbers":
        return statistics.mean(result[field] for result in results)
    wrong = sum(result["error"] * result["judged"] for result in results)
    return (wrong + 0.5) / (sum(result["judged"] for result in results) + 1)


Pair = tuple[list[Result], list[Result]]


def pairs(results: Sequence[Result], ours: str, theirs: str, field: str) -> dict[str, Pair]:
    """Ours and theirs on each set that both did, of the seeds that both did."""
    found: dict[tuple[str, str], dict[int, Result]] = {}
    for result in usable(results, field):
        found.setdefault((result["set"], result["model"]), {})[result["seed"]] = result
    by_set = {}
    for name in names(results, "set"):
        mine, other = found.get((name, ours), {}), found.get((name, theirs), {})
        seeds = sorted(mine.keys() & other.keys())
        if seeds:
            by_set[name] = [mine[s] for s in seeds], [other[s] for s in seeds]
    return by_set


def ratios(results: Sequence[Result], ours: str, theirs: str, field: str) -> dict[str, float]:
    """Ours / theirs on each set that both did, over the seeds that both did."""
    both = pairs(results, ours, theirs, field)
    return {name: level(mine, field) / level(other, field) for name, (mine, other) in both.items()}


def noise(mine: Sequence[Result], other: Sequence[Result]) -> float:
    """The standard error of the mean difference of two models' errors: over the splits, or of the rows if that is more.

    The rows' counts both models' as if they erred apart from one another, so it is rather too large.
    """
    differences = [one["error"] - two["error"] for one, two in zip(mine, other, strict=True)]
    splits = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    rows = sum(result["judged"] for result in mine)
    if mine[0]["kind"] == "numbers":  # of a root mean square, were the residuals normal
        return max(splits, math.hypot(level(mine, "error"), level(other, "error")) / math.sqrt(2 * rows))
    return max(splits, math.sqrt(sum(result["error"] * result["judged"] for result in [*mine, *other])) / rows)


def worse_beyond_noise(results: Sequence[Result], ours: str = "search", theirs: str = "gradwise") -> list[str]:
    """The sets on which ours is worse by more than twice the noise."""
    found = []
    for name, (mine, other) in pairs(results, ours, theirs, "error").items():
        gaps = [one["error"] - two["error"] for one, two in zip(mine, other, strict=True)]
        if statistics.fmean(gaps) > 2 * noise(mine, other):
            found.append(name)
    return found


def budgets(results: Sequence[Result]) -> list[float]:
    """The seconds that models were given, from few to many."""
    return sorted({result["budget"] for result in results if "budget" in result})


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else math.nan


def _spread(values: Sequence[float]) -> float:
    """The standard error of the mean logarithm: of the geometric mean, as a share of it."""
    return statistics.stdev(map(math.log, values)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _by_kind(by_set: dict[str, float]) -> list[list[float]]:
    """Values of all sets, of those with classes or labels, and of those with numbers."""
    numbers = [value for name, value in by_set.items() if name.startswith("reg_")]
    return [list(by_set.values()), [value for name, value in by_set.items() if not name.startswith("reg_")], numbers]


def _told(values: Sequence[float]) -> str:
    return f"{geometric_mean(values):.3f} ({len(values)})" if values else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(*cells: str) -> list[str]:
    return [_row(cells), "|" + "---|" * len(cells)]


def _ranks(results: Sequence[Result]) -> dict[str, float]:
    """Each model's mean rank, over the sets that all of them did."""
    from scipy.stats import rankdata

    means = _means(results)
    models = names(results, "model")
    ranked = [
        rankdata([means[name, model] for model in models])
        for name in names(results, "set")
        if all((name, model) in means for model in models)
    ]
    return {model: statistics.fmean(ranks[n] for ranks in ranked) for n, model in enumerate(models) if ranked}


def _means(results: Sequence[Result]) -> dict[tuple[str, str], float]:
    """Mean errors over seeds, by set and model."""
    cells: dict[tuple[str, str], list[float]] = {}
    for result in done(results):
        cells.setdefault((result["set"], result["model"]), []).append(result["error"])
    return {cell: statistics.fmean(errors) for cell, errors in cells.items()}


def _in_order(results: Sequence[Result]) -> list[Result]:
    """By set in the alphabet, then by model as they are declared."""
    order = list(TITLES)
    known = {model: order.index(model) for model in names(results, "model") if model in order}
    return sorted(results, key=lambda one: (one["set"], known.get(one["model"], len(order))))


def show_errors(results: Sequence[Result], seconds: bool = False) -> str:
    """One line a set, one column a model; the best in bold, and at the end ranks and, if asked for, mean seconds."""
    models = [model for model in TITLES if model in names(results, "model")]
    means, kinds = _means(results), {result["set"]: result["kind"] for result in results}
    lines = _head("set", *(TITLES[model] for model in models))
    for name, kind in kinds.items():
        best = min((means[name, model] for model in models if (name, model) in means), default=math.nan)
        cells = []
        for model in models:
            value = means.get((name, model))
            tried = [result for result in results if (result["set"], result["model"]) == (name, model)]
            if value is None:
                unable = kind == "labels" and model in NO_LABELS
                cells.append("failed" if tried else "one target only" if unable else "")
                continue
            told = f"{value:.4g}" if kind == "numbers" else f"{value:.2%}"
            failed = len(tried) - len(done(tried))
            cells.append((f"**{told}**" if value == best else told) + (f" ({failed} failed)" if failed else ""))
        lines.append(_row([name, *cells]))
    ranks = _ranks(results)
    if len(models) > 1 and ranks:
        lines.append(_row(["mean rank", *(f"{ranks[model]:.2f}" for model in models)]))
    if seconds:
        lines.append(_row(["mean seconds", *(f"{mean_seconds(results, model):.0f}" for model in models)]))
    return "\n".join(lines)


def mean_seconds(results: Sequence[Result], model: str) -> float:
    """Wall seconds, whatever else the machine did."""
    taken = [result["seconds"] for result in done(results) if result["model"] == model]
    return statistics.fmean(taken) if taken else math.nan


def _first_fits(results: Sequence[Result]) -> list[Result]:
    """Those of the first split: a process that fits the same shapes again has traced and compiled them already."""
    return [result for result in results if result["seed"] == 0]


def show_ratios(results: Sequence[Result], ours: str = "gradwise") -> str:
    """Geometric means of ours / theirs: errors overall and by kind of task, and times."""
    peers = [model for model in TITLES if model in names(results, "model") and model != ours]
    times = ("wall seconds", "CPU seconds", "CPU seconds, first fits")
    lines = _head(f"{ours} /", "error", "of classes", "of numbers", *times)
    for peer in peers:
        columns = _by_kind(ratios(results, ours, peer, "error"))
        columns += [list(ratios(results, ours, peer, field).values()) for field in ("seconds", "cpu_seconds")]
        columns.append(list(ratios(_first_fits(results), ours, peer, "cpu_seconds").values()))
        lines.append(_row([TITLES[peer], *(_told(values) for values in columns)]))
    return "\n".join(lines)


def show_targets(results: Sequence[Result], ours: str = "gradwise", targets: Sequence[Any] = TARGETS) -> str:
    """What was wanted, beside what was measured."""
    lines = _head("geometric mean ± standard error", "measured", "wanted", "")
    rows = [(results, "", *target) for target in targets]
    rows += [(_first_fits(results), " of first fits", *target) for target in targets if target[0] != "error"]
    for some, which, field, peer, wanted in rows:
        values = list(ratios(some, ours, peer, field).values())
        if values:
            verdict = "reached" if geometric_mean(values) <= wanted else "missed"
            if any(one.get("elsewhere") for one in some if one["model"] == peer):
                verdict += ", the peer in another run"
            verdict = verdict if len(values) > 2 else "too few tables"
            measured = f"{geometric_mean(values):.3f} ± {geometric_mean(values) * _spread(values):.3f} ({len(values)})"
            lines.append(_row([f"{FIELDS[field]}{which} / {TITLES[peer]}", measured, f"≤ {wanted:g}", verdict]))
        elif ours == "search":
            lines.append(_row([f"{FIELDS[field]} / {TITLES[peer]}", "not measured", f"≤ {wanted:g}", ""]))
    return "\n".join(lines) if len(lines) > 2 else ""


def show_times(results: Sequence[Result]) -> str:
    """Mean seconds of a fit, over all sets and seeds that a model did undisturbed."""
    lines = _head("model", "fits", "wall seconds", "CPU seconds", "of which compiling, wall")
    for model in (model for model in TITLES if model in names(results, "model")):
        mine = [result for result in usable(results, "seconds") if result["model"] == model]
        if mine:
            means = [statistics.fmean(result[field] for result in mine) for field in ("seconds", "cpu_seconds")]
            compiling = [result["compile_seconds"] for result in mine if "compile_seconds" in result]
            last = f"{statistics.fmean(compiling):.1f}" if compiling else ""
            lines.append(_row([TITLES[model], str(len(mine)), *(f"{mean:.1f}" for mean in means), last]))
    return "\n".join(lines)


def _splits(results: Sequence[Result]) -> str:
    counts = [len(names([one for one in results if one["set"] == name], "seed")) for name in names(results, "set")]
    least, most = min(counts), max(counts)
    return f"{least} to {most} splits" if least < most else f"{most} split{'s' * (most > 1)}"


def _same_splits(results: Sequence[Result]) -> list[Result]:
    """Of each set the splits that all its models did: only their means may stand side by side."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for one in done(results):
        seeds.setdefault(one["set"], {}).setdefault(one["model"], set()).add(one["seed"])
    shared = {name: set.intersection(*by_model.values()) for name, by_model in seeds.items()}
    return [one for one in results if one["seed"] in shared.get(one["set"], ())]


def _about(results: Sequence[Result]) -> str:
    return (
        f"Mean over {_splits(results)}, a fifth of the rows judged: error rate, wrong labels of all "
        "labels (multilabel_…), or root mean squared error (reg_…)."
    )


def warnings_of(results: Sequence[Result]) -> list[str]:
    """What a reader of the tables should know of their making."""
    found = []
    if many := sum(map(disturbed, results)):
        found.append(
            f"The times of {many} of {len(results)} fits are left out: other work had more than a tenth of the cores."
        )
    codes = {result["code"] for result in results if "code" in result}
    if len(codes) > 1:
        found.append(f"**gradwise's results come from {len(codes)} versions of its code: measure them again.**")
    return found


def show(results: Sequence[Result]) -> str:
    """All tables of a comparison of models."""
    results = _in_order(results)
    parts = [_about(results), show_errors(results)]
    if "gradwise" in names(results, "model"):
        parts += [
            "Geometric means of gradwise / the other, below 1 where gradwise is better, and in brackets over how many "
            "sets. Error rates count as (errors + 1/2) / (rows + 1).",
            show_ratios(results),
            show_targets(results),
        ]
    parts += [
        "Seconds of one fit. Compiling is in them, less where a cache had the program. All splits of a set are fitted "
        "in one process: after the first, gradwise compiles no more.",
        show_times(results),
    ]
    parts += warnings_of(results)
    return "\n\n".join(part for part in parts if part)


def show_search(results: Sequence[Result], targets: Sequence[tuple[str, str, float]] = SEARCH_TARGETS) -> str:
    """The search beside one fit and beside what others do in the same time."""
    results = _in_order(results)
    worse = ratios(results, "search", "gradwise", "error")
    lines = [show_targets(results, "search", targets)]
    if worse and lines[0]:
        beyond = worse_beyond_noise(results)
        told = ", ".join(f"{name} {worse[name]:.2f}" for name in beyond)
        verdict = "missed" if beyond else "reached"
        lines.append(_row(["tables worse than gradwise by more than noise", told or "none", "none", verdict]))
    beside = _same_splits(results)
    parts = [_about(beside), show_errors(beside, seconds=True), "\n".join(lines)]
    worst = sorted(worse.items(), key=lambda one: -one[1])[:3]
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst)
    parts.append(
        f"Where the search does least for a fit, its error as a multiple of the fit's: {told}. Noise is twice the "
        "standard error of the difference, over the splits or of the rows, whichever is more."
        if told
        else ""
    )
    codes = {result["code"] for result in results if result["model"] == "search" and "code" in result}
    if len(codes) > 1:
        parts.append(f"**The searches come from {len(codes)} versions of gradwise: measure them again.**")
    return "\n\n".join(part for part in parts if part)


def _by_budget(results: Sequence[Result]) -> list[Result]:
    """Results with the seconds given in the model's name."""
    return [{**one, "model": f"{one['model']} {one['budget']:g}"} if "budget" in one else one for one in results]


def anytime_curves(results: Sequence[Result]) -> dict[str, list[tuple[float, list[float]]]]:
    """For each model the seconds that it was given, or that it took, and its errors as multiples of one fit's.

    The sets are those on which the search was given every time there is, so that all its points are of the same sets.
    """
    named = _by_budget(results)
    searched = [set(ratios(named, f"search {seconds:g}", "gradwise", "error")) for seconds in budgets(results)]
    shared = set.intersection(*searched) if searched else set()
    kept = [one for one in results if one["set"] in shared]
    named, curves = _by_budget(kept), {}
    for model in (model for model in TITLES if model in names(kept, "model")):
        given = budgets([one for one in kept if one["model"] == model])
        columns = {seconds: f"{model} {seconds:g}" for seconds in given} or {mean_seconds(kept, model): model}
        points = [(time, list(ratios(named, name, "gradwise", "error").values())) for time, name in columns.items()]
        curves[model] = [(time, values) for time, values in points if values]
    return curves


def steps(results: Sequence[Result], model: str = "search") -> list[tuple[float, float, list[float]]]:
    """From which seconds to which, and the errors after as multiples of those before, on every set that has both."""
    named = _by_budget(results)
    times = budgets([one for one in results if one["model"] == model])
    by_set = [ratios(named, f"{model} {b:g}", f"{model} {a:g}", "error") for a, b in itertools.pairwise(times)]
    return [(*pair, list(one.values())) for pair, one in zip(itertools.pairwise(times), by_set, strict=True)]


def show_anytime(results: Sequence[Result]) -> str:
    """Errors as multiples of one fit's, one line for each time given; and whether the search's fall at every step."""
    curves, moves = anytime_curves(results), steps(results)
    timed = [model for model in curves if model in TAKES_SECONDS]
    lines = _head("seconds", *(TITLES[model] for model in timed), "the search / its line above")
    changes = {after: values for _, after, values in moves}
    for seconds in budgets(results):
        cells = [_told(dict(curves[model]).get(seconds, [])) for model in timed]
        moved = changes.get(seconds, [])
        error = f" ± {geometric_mean(moved) * _spread(moved):.3f}" if len(moved) > 1 else ""
        last = f"{geometric_mean(moved):.3f}{error} ({len(moved)})" if moved else ""
        lines.append(_row([f"{seconds:g}", *cells, last]))
    free = [f"{TITLES[m]} {_told(p[0][1])} in {p[0][0]:.0f} s" for m, p in curves.items() if m not in timed and p]
    rises = [f"{a:g} to {b:g} s" for a, b, values in moves if not values or geometric_mean(values) >= 1]
    measured = f"no fall from {', nor from '.join(rises)}" if rises else "it falls at every step"
    parts = [
        f"Errors as multiples of one fit's, geometric means over {_splits(results)} of each table; in brackets the "
        "number of tables. The last column has all tables that were given both times.",
        "\n".join(lines),
        f"Without a time limit: {'; '.join(free)}." if free else "",
        f"Wanted: a fall at every step. Measured: {measured}." if moves else "",
    ]
    return "\n\n".join(part for part in parts if part)


def show_ablation(results: Sequence[Result]) -> str:
    """One line a change: its error as a multiple of the default's, on each set and over all, and its time."""
    ordered = sorted(results, key=lambda one: one["set"])
    sets = names(ordered, "set")
    lines = _head("the default with", "all", "classes", "numbers", *sets, "CPU seconds")
    for change in names(results, "model"):
        if change == "default":
            continue
        errors = ratios(ordered, change, "default", "error")
        every, *kinds = _by_kind(errors)
        cells = [f"{geometric_mean(every):.3f} ± {geometric_mean(every) * _spread(every):.3f}"]
        cells += [f"{geometric_mean(values):.3f}" if values else "" for values in kinds]
        cells += [f"{errors[name]:.2f}" if name in errors else "" for name in sets]
        times = list(ratios(ordered, change, "default", "cpu_seconds").values())
        lines.append(_row([change, *cells, f"{geometric_mean(times):.2f}" if times else ""]))
    title = (
        "Errors as multiples of the default's, geometric means, over "
        f"{_splits(results)} of each set: above 1 the change makes things worse; ± one standard error, over the sets."
    )
    return "\n\n".join([title, "\n".join(lines), *warnings_of(results)])


def show_gpu(results: Sequence[Result]) -> str:
    """Seconds of a first fit, with compiling, and of a second one, and how many times longer RealMLP-TD takes."""
    found = {(result["set"], result["model"]): result for result in usable(results, "seconds")}
    lines = _head("set", "gradwise, first fit", "second fit", TITLES["realmlp"], "ratio, first", "ratio, second")
    seconds: list[float] = []
    for name in names(sorted(results, key=lambda one: one["set"]), "set"):
        pair = [found.get((name, model)) for model in ("gradwise", "realmlp")]
        if None in pair:
            continue
        ours, theirs = (one["fits"] for one in pair if one is not None)
        ratios = [theirs[0] / one for one in ours]
        seconds.append(ratios[1])
        lines.append(_row([name, *(f"{v:.2f}" for v in (*ours, *theirs)), *(f"{ratio:.1f}×" for ratio in ratios)]))
    if seconds:
        mean = geometric_mean(seconds)
        verdict = "reached" if mean >= GPU_TARGET else "missed"
        lines.append(_row(["geometric mean", "", "", "", "", f"**{mean:.1f}×**"]))
        lines.append(_row(["wanted", "", "", "", "", f"≥ {GPU_TARGET:g}×: {verdict}"]))
    title = "Seconds of training the same network for the same 256 epochs with batches of 256; a first fit compiles."
    return "\n\n".join([title, "\n".join(lines), *warnings_of(results)])


SHOW: dict[str, Callable[[Sequence[Result]], str]] = {
    "tables": show,
    "tables_ablation": show_ablation,
    "tables_search": show_search,
    "anytime": show_anytime,
    "tables_gpu": show_gpu,
}
