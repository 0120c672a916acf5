"""Writes the tables of README.md and the docs from the results of the benchmarks, so that none is typed by hand.

python benchmarks/tables.py            rewrite the tables
python benchmarks/tables.py --check    fail if they are not what the results say
"""

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _source(result: dict[str, Any]) -> str:
    return f"\n{result['machine']}; {result['date']}; `{result['command']}`.\n"


def fit_vs_peers(result: dict[str, Any]) -> str:
    """Ratios by cell, then the summary."""
    peers = list(result["cells"][0]["ratios"])
    on_cpu = result["cells"][0]["share_of_numpy"] is not None
    head = "| hidden layers | H | B | " + ("share of NumPy's rate | " if on_cpu else "µs an update | ")
    lines = [head + " | ".join(peers) + " |", "|" + "---|" * (4 + len(peers))]
    for cell in result["cells"]:
        micro = cell["seconds"]["gradwise"] * cell["batch"] / cell["examples"] * 1e6
        fourth = f"{cell['share_of_numpy']:.0%}" if on_cpu else f"{micro:.0f}"
        ratios = " | ".join(f"{cell['ratios'][peer]:.1f}×" for peer in peers)
        lines.append(f"| {cell['layers']} | {cell['hidden']} | {cell['batch']} | {fourth} | {ratios} |")
    if len(result["cells"]) > 4:
        means = [math.exp(sum(math.log(c["ratios"][p]) for c in result["cells"]) / len(result["cells"])) for p in peers]
        lines.append("| geometric mean | | | | " + " | ".join(f"**{mean:.1f}×**" for mean in means) + " |")
    title = "One network, plain SGD, tanh layers, 784 inputs, 10 classes; shuffling and validation included for all. "
    title += "How many times longer each peer takes than gradwise"
    title += (
        ", and the share of NumPy's matrix-product rate (2048², float32) that gradwise reaches:\n\n"
        if on_cpu
        else " on a GPU:\n\n"
    )
    tail = ""
    if result["overhead"]:
        tail = f"\nValidation, history and checkpoints cost {result['overhead']['overhead']:.1%} of the bare updates.\n"
    return title + "\n".join(lines) + "\n" + tail + _source(result)


def startup(result: dict[str, Any]) -> str:
    lines = ["| start | seconds |", "|---|---|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in result["seconds"].items()]
    return "\n".join(lines) + "\n" + _source(result)


def defaults_quality(result: dict[str, Any]) -> str:
    lines = [
        "| data | metric | gradwise, default recipe | seconds | scikit-learn's default network | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        theirs = row["scikit_learn"]
        percent = row["metric"] == "error_rate"

        def tell(value: float, percent: bool = percent) -> str:
            return f"{value:.2%}" if percent else f"{value:.3f}"

        lines.append(
            f"| {row['set']} | {'test error' if percent else 'R²'} | {tell(row['mean'])} "
            f"± {tell(row['standard_error'])} ({len(row['values'])} seeds) | {row['seconds']:.1f} "
            f"| {tell(theirs['mean'])} ({len(theirs['values'])} seeds) | {theirs['seconds']:.1f} |"
        )
    return "\n".join(lines) + "\n" + _source(result)


def default_choices(result: dict[str, Any]) -> str:
    from default_choices import show

    return show(result["rows"]) + "\n" + _source(result)


def demo(result: dict[str, Any]) -> str:
    return "```\n$ gradwise fit digits --out runs/digits\n" + result["output"].strip("\n") + "\n```\n" + _source(result)


def search_demo(result: dict[str, Any]) -> str:
    return f"```\n$ {result['shown']}\n" + result["output"].strip("\n") + "\n```\n" + _source(result)


def search_vs_optuna(result: dict[str, Any]) -> str:
    hours = result["trials_an_hour"]
    title = (
        "A random search in Bergstra and Bengio's space on 10 000 MNIST digits: "
        f"the same {result['trials']} recipes of {result['epochs']} epochs, 2 processes on each side.\n\n"
    )
    lines = ["| | trials an hour |", "|---|---|"]
    lines += [f"| gradwise | {hours['gradwise']:.0f} |", f"| Optuna + PyTorch eager | {hours['optuna']:.0f} |"]
    return title + "\n".join(lines) + f"\n\nRatio: **{result['ratio']:.2f}×**.\n" + _source(result)


def search_vs_optuna_gpu(result: dict[str, Any]) -> str:
    title = (
        f"The same space on a GPU, the paper's own stopping rule: {result['trials']} trials of "
        f"{result['mean_epochs']:.0f} epochs on average in {result['seconds']:.0f} s, compiling included. PyTorch's "
        "time per update is measured on a sample of the same recipes and multiplied by the updates that gradwise "
        "ran.\n\n"
    )
    lines = ["| PyTorch eager processes | hours for these trials | gradwise is faster by |", "|---|---|---|"]
    for count, peer in result["peers"].items():
        lines.append(f"| {count} | {peer['seconds'] / 3600:.1f} | **{peer['ratio']:.0f}×** |")
    lines += ["", "Test error of the best of N random trials (the paper's grid: 4.69 %):", ""]
    lines += ["| N | experiments | least | quartile | median | quartile | most | mean ± deviation |", "|" + "---|" * 8]
    for row in result["efficiency"]:
        quartiles = " | ".join(f"{value:.2%}" for value in row["quartiles"])
        told = f"{row['mean']:.2%} ± {row['deviation']:.2%}"
        lines.append(f"| {row['trials']} | {row['experiments']} | {quartiles} | {told} |")
    return title + "\n".join(lines) + "\n" + _source(result)


def search_overhead(result: dict[str, Any]) -> str:
    lines = [f"| {result['trials']:,} trials of a trivial objective | measured | asked |", "|---|---|---|"]
    lines += [f"| {name} | {value:.2f} | {result['asked'][name]:g} |" for name, value in result["measured"].items()]
    return "\n".join(lines) + "\n" + _source(result)


def hyperlearner(result: dict[str, Any]) -> str:
    peers = ("network", "random search", "boosting")
    head = "| data | rows | gradwise search | trials | scikit-learn's network | RandomizedSearchCV over it | boosting |"
    lines = [head, "|" + "---|" * 7]
    for row in result["rows"]:
        one = row["learners"]
        tell = (lambda v: f"{v:.2%}") if row["task"] == "classes" else (lambda v: f"{v:.4g}")
        ours, trials = one["gradwise"]["error"], one["gradwise"]["trials"]
        best = min(learner["error"] for learner in one.values())
        cells = [f"**{tell(v)}**" if v == best else tell(v) for v in (one[peer]["error"] for peer in peers)]
        mine = f"**{tell(ours)}**" if ours == best else tell(ours)
        lines.append(f"| {row['name']} | {row['rows']} | {mine} | {trials} | {' | '.join(cells)} |")
    wins = result["wins"]
    tail = (
        f"\nUnattended, {result['seconds']:g} s each for gradwise and for the random search. Error rate, or root mean "
        f"squared error (reg_…), on a fifth of the rows. gradwise is better than both networks on {wins['both']} of "
        f"{len(result['rows'])} sets, than boosting on {wins['boosting']}.\n"
    )
    return "\n".join(lines) + "\n" + tail + _source(result)


def optimisers(results: dict[str, dict[str, Any]]) -> str:
    """One row an optimiser, one column a problem."""
    heads = {
        "logistic_adult": "adult",
        "logistic_web": "web pages",
        "logistic_spam": "spam",
        "mnist": "MNIST, test error",
        "autoencoder": "auto-encoder, squared error",
    }
    known = [name for name in heads if name in results]
    names = list(dict.fromkeys(run["optimiser"] for name in known for run in results[name]["runs"]))
    lines = ["| optimiser | " + " | ".join(heads[name] for name in known) + " |", "|" + "---|" * (1 + len(known))]
    for optimiser in names:
        cells = []
        for name in known:
            result = results[name]
            run = next((run for run in result["runs"] if run["optimiser"] == optimiser), None)
            cells.append(_optimiser_cell(name, result, run))
        lines.append(f"| {optimiser} | " + " | ".join(cells) + " |")
    about = [
        f"{heads[name]}: {results[name]['about']}, {results[name]['seconds']:g} s; {results[name]['machine']}; "
        f"{results[name]['date']}; `{results[name]['command']}`."
        for name in known
    ]
    words = (
        "Logistic regression: how far the criterion is above its optimum; MNIST: test error at the best validation "
        "error; auto-encoder: training squared error of a digit. Each after the same seconds, the rate (or the like) "
        "chosen by a random search of the same size for all that have one. An empty cell was not measured.\n\n"
    )
    return words + "\n".join(lines) + "\n\n" + "\n".join(f"- {line}" for line in about) + "\n"


def _optimiser_cell(name: str, result: dict[str, Any], run: dict[str, Any] | None) -> str:
    if run is None:
        return ""
    if "curve" not in run or not math.isfinite(run["final"]):
        return "failed"
    if result["optimum"] is not None:
        gap = run["final"] - result["optimum"]
        return f"{gap:.1e}" if gap > 1e-8 else "< 1e-8"  # 32 bits end there
    return f"{run['told']:.2%}" if name == "mnist" else f"{min(run['curve']['valid']):.2f}"


def optimiser_peers(result: dict[str, Any]) -> str:
    lines = ["| what | peer | ours, ms | peer's, ms | ratio |", "|---|---|---|---|---|"]
    for line in result["lines"]:
        if line.get("ratio") is None:
            lines.append(f"| {line['what']} | {line['peer']} | | | {line['note']} |")
            continue
        times = " | ".join(f"{line[side] * 1e3:.3g}" for side in ("ours_seconds", "peer_seconds"))
        lines.append(f"| {line['what']} | {line['peer']} | {times} | **{line['ratio']:.2f}×** |")
    title = "How many times longer a peer takes for the same work; below 1 it is faster than gradwise.\n\n"
    return title + "\n".join(lines) + "\n" + _source(result)


def break_even(result: dict[str, Any]) -> str:
    lines = ["| examples | SGD, s | L-BFGS, s |", "|---|---|---|"]
    for row in result["rows"]:
        times = (row[name] for name in ("stochastic", "batch"))
        cells = " | ".join(f"more than {result['limit']:g}" if time is None else f"{time:.3f}" for time in times)
        lines.append(f"| {row['examples']:,} | {cells} |")
    title = f"Seconds to a training loss of {result['target']:g}: {result['sentence']}.\n\n"
    return title + "\n".join(lines) + "\n" + _source(result)


TABLES = {
    "demo": demo,
    "optimiser_peers": optimiser_peers,
    "break_even": break_even,
    "search_demo": search_demo,
    "search_vs_optuna": search_vs_optuna,
    "search_vs_optuna_gpu": search_vs_optuna_gpu,
    "search_overhead": search_overhead,
    "hyperlearner": hyperlearner,
    "fit_vs_peers_cpu": fit_vs_peers,
    "fit_vs_peers_gpu": fit_vs_peers,
    "startup": startup,
    "defaults_quality": defaults_quality,
    "default_choices": default_choices,
}


def filled(text: str) -> str:
    """The document with every table whose result exists."""
    for name, table in TABLES.items():
        path = HERE / "results" / f"{name}.json"
        if not path.exists():
            continue
        text = _put(text, name, table(json.loads(path.read_text())))
    several = {
        path.stem.removeprefix("optimisers_"): json.loads(path.read_text())
        for path in sorted((HERE / "results").glob("optimisers_*.json"))
    }
    return _put(text, "optimisers", optimisers(several)) if several else text


def _put(text: str, name: str, body: str) -> str:
    """The text with a table between its marks."""
    pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)"
    return re.sub(pattern, lambda found: found[1] + body + found[2], text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    for document in (
        HERE.parent / "README.md",
        *(HERE.parent / "docs" / f"{name}.md" for name in ("design", "optimisers")),
    ):
        before = document.read_text()
        after = filled(before)
        if chosen.check and before != after:
            sys.exit(f"{document.name} does not hold what benchmarks/results says: run benchmarks/tables.py")
        if not chosen.check:
            document.write_text(after)


if __name__ == "__main__":
    main()
