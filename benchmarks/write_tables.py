"""Writes the tables of README.md and the docs from the results of the benchmarks, so that none is typed by hand.

python benchmarks/write_tables.py            rewrite the tables
python benchmarks/write_tables.py --check    fail if they are not what the results say
"""

import argparse
import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _source(result: dict[str, Any]) -> str:
    return f"\n{result['machine']}; {result['date']}; `{result['command']}`.\n"


# How many times longer a peer should take: over all cells on a CPU, and for one hidden layer of 500 units on a GPU.
WANTED = {"cpu": {"torch eager": 3.5, "scikit-learn": 5.0}, "gpu": {"torch eager": 30.0}}


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
    wanted = [WANTED["cpu" if on_cpu else "gpu"].get(peer) for peer in peers]
    which = "wanted | | | |" if on_cpu else "wanted: 1 | 500 | 32 | |"
    lines.append(f"| {which} " + " | ".join("" if one is None else f"≥ {one:g}×" for one in wanted) + " |")
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
    if result.get("population"):
        slots, took = result["population"]["slots"], result["population"]["milliseconds"]
        tail = f"\nEach of {slots} such networks (one hidden layer) trained at once takes {took:.2f} ms an epoch "
        tail += "(wanted: 0.7; its weights crossing the GPU's memory as often as they must: 0.35).\n"
    return title + "\n".join(lines) + "\n" + tail + _source(result)


def startup(result: dict[str, Any]) -> str:
    lines = ["| start | seconds | target |", "|---|---|---|"]
    lines += [f"| {name} | {value:.2f} | {result['asked'][name]:g} |" for name, value in result["seconds"].items()]
    if result.get("folds"):
        lines += ["", "| five folds | model | cold, s | warm, s | error |", "|---|---|---|---|---|"]
        lines += [
            f"| {name} | {peer} | {told['cold']:.1f} | {told['warm']:.1f} | {told['error']:.1%} |"
            for name, found in result["folds"].items()
            for peer, told in found.items()
        ]
    return "\n".join(lines) + "\n" + _source(result)


def exported(result: dict[str, Any]) -> str:
    """One row a form and data set."""
    lines = [
        "| model | form | file, kB | one row, µs | fresh process to first prediction, s |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        cells = (f"{row['bytes'] / 1000:,.0f}", f"{row['microseconds']:,.0f}", f"{row['start_seconds']:.2f}")
        lines.append(f"| {row['model']} | {row['form']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" + _source(result)


def label_errors(result: dict[str, Any]) -> str:
    """One row per set and share of planted errors; the mean over seeds."""
    head = "| data | rows | planted | suspect | precision | found | AUROC | last loss: precision | found | AUROC "
    lines = [head + "| GW215 |", "|" + "---|" * 11]

    def mean(runs: list[dict[str, Any]], name: str, form: str) -> str:
        known = [run[name] for run in runs if run.get(name) is not None]
        return format(statistics.mean(known), form) if known else ""

    for row in result["rows"]:
        runs, cells = row["runs"], []
        for before in ("", "plain_"):
            cells += [mean(runs, f"{before}precision", ".0%"), mean(runs, f"{before}recall", ".0%")]
            cells.append(mean(runs, f"{before}auroc", ".3f"))
        reported = f"{sum(run['reported'] for run in runs)} of {len(runs)}"
        share = f"{row['share']:.0%}" if row["share"] else "none"
        name = row["set"].removesuffix("diabetes").replace("_", "-")
        first = f"| {name} | {row['rows']:,} | {share} | {mean(runs, 'suspect', '.1%')} | "
        lines.append(f"{first}{' | '.join(cells)} | {reported} |")
    return "\n".join(lines) + f"\n\nLimits {result['limits']}.\n" + _source(result)


def sequences(result: dict[str, Any]) -> str:
    """Spoken digits, the adding problem, and the time of a gradient."""
    lines = ["| spoken digits | learned from | test error | a linear model on summaries | epochs | minutes |"]
    lines.append("|---|---|---|---|---|---|")
    titles = {"official": "official test set", "speakers": "a speaker never heard"}
    for name, title in titles.items():
        for run in result.get(name, ()):
            linear = "" if run["linear"] is None else f"{run['linear']:.1%}"
            cells = f"{run['rows']:,} | {run['test']:.1%} | {linear} | {run['epochs']:.0f} | {run['seconds'] / 60:.1f}"
            lines.append(f"| {title} | {cells} |")
    lines += ["", "| adding problem | steps | squared error | of a constant | seconds |", "|---|---|---|---|---|"]
    for row in result.get("adding", ()):
        cells = f"{row['steps']} | {row['squared']:.4f} | {row['constant']:.3f} | {row['seconds']:.0f}"
        lines.append(f"| `{row['cell']}` | {cells} |")
    if "copying" in result:
        lines += ["", "| copying, steps of noise | errors of each cell (chance: 87.5%) | seconds |", "|---|---|---|"]
    for steps in dict.fromkeys(row["steps"] for row in result.get("copying", ())):
        rows = [row for row in result["copying"] if row["steps"] == steps]
        errors = ", ".join(f"`{row['cell']}` {row['error']:.1%}" for row in rows)
        seconds = ", ".join(f"{row['seconds']:.0f}" for row in rows)
        lines.append(f"| {steps} | {errors} | {seconds} |")
    found = result["skipping"]
    told = f"A gradient of 32 recordings of at most {found['longest']} steps, in the room of {found['room']}, takes "
    told += f"{found['skipped']:.0f} ms; with nothing skipped it takes {found['whole']:.0f} ms."
    return "\n".join([*lines, "", told]) + "\n" + _source(result)


def language(result: dict[str, Any]) -> str:
    """Perplexities of the Penn Treebank, and the time of the training."""
    lines = ["| setting | validation perplexity | test perplexity | epochs | minutes |", "|---|---|---|---|---|"]
    for run in result["runs"]:
        cells = f"{run['valid_perplexity']:.1f} | {run['test_perplexity']:.1f} | {len(run['valid_by_epoch'])}"
        lines.append(f"| `{run['which']}` | {cells} | {run['training_seconds'] / 60:.0f} |")
    lines += ["", "| setting | WordSim-353, pairs known | SimLex-999, pairs known | analogies right, known |"]
    lines.append("|---|---|---|---|")
    for run in result["runs"]:
        pairs = [f"{run[name]['correlation']:.2f}, {run[name]['covered']}" for name in ("wordsim353", "simlex999")]
        right = f"{run['analogies']['accuracy']:.0%}, {run['analogies']['covered']:,}"
        lines.append(f"| `{run['which']}` | {' | '.join(pairs)} | {right} |")
    return "\n".join(lines) + "\n" + _source(result)


def trees(result: dict[str, Any]) -> str:
    """Errors by depth of both networks, then the times of the two orders."""
    rows, trained = result["rows"], result["trained"]
    levels = list(rows[0]["errors"])
    told = f"Wrong values among 1,000 formulas, after {trained['epochs']:.0f} epochs of {trained['rows']:,} formulas "
    told += f"of depth 2 to {trained['depth']}.\n\n"
    head = " | ".join(f"depth {level}" if level[0].isdigit() else f"other formulas {level}" for level in levels)
    lines = [f"| network | seeds | {head} | seconds |", "|" + "---|" * (len(levels) + 3)]
    for name in ("recursive", "recurrent"):
        own = [row for row in rows if row["network"] == name]
        errors = [statistics.mean(row["errors"][level] for row in own) for level in levels]
        cells = " | ".join(f"{error:.1%}" for error in errors)
        lines.append(f"| {name} | {len(own)} | {cells} | {statistics.mean(row['seconds'] for row in own):.0f} |")
    lines += ["", "| depth | nodes | levels, widest | ms node after node | ms level after level |"]
    lines.append("|---|---|---|---|---|")
    for one in result["orders"]:
        cells = f"{one['levels']}, {one['widest']} | {one['ms']['nodes']:.1f} | {one['ms']['levels']:.1f}"
        lines.append(f"| {one['depth']} | {one['nodes']} | {cells} |")
    return told + "\n".join(lines) + "\n" + _source(result)


def stage_pretraining(result: dict[str, Any]) -> str:
    """Mean test errors, and the paired differences from the network as it is drawn, with one standard error."""
    names = list(result["rows"][0]["errors"])
    lines = ["| labels | seeds | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for labels in dict.fromkeys(row["labels"] for row in result["rows"]):
        own = [row["errors"] for row in result["rows"] if row["labels"] == labels]
        cells = [f"{100 * statistics.mean(one['drawn'] for one in own):.1f} %"]
        for name in names[1:]:
            gaps = [100 * (one[name] - one["drawn"]) for one in own]
            error = statistics.stdev(gaps) / math.sqrt(len(gaps))
            mean = 100 * statistics.mean(one[name] for one in own)
            cells.append(f"{mean:.1f} % ({statistics.mean(gaps):+.1f} ± {error:.1f})")
        lines.append(f"| {labels} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" + _source(result)


def example_cost(result: dict[str, Any]) -> str:
    lines = ["| hidden layers | ns an example without | with | more |", "|---|---|---|---|"]
    for row in result["rows"]:
        without, with_ = row["nanoseconds"]["without"], row["nanoseconds"]["with"]
        widths = " and ".join(map(str, row["widths"]))
        lines.append(f"| {widths} | {without:,.0f} | {with_:,.0f} | {with_ / without - 1:.1%} |")
    return "\n".join(lines) + "\n" + _source(result)


def suite_time(result: dict[str, Any]) -> str:
    lines = ["| `make test` | measured | target |", "|---|---|---|"]
    lines += [f"| {name} | {value:.1f} | {result['asked'][name]:g} |" for name, value in result["measured"].items()]
    return "\n".join(lines) + "\n" + _source(result)


def images(result: dict[str, Any]) -> str:
    lines = ["| data | training pictures | network | test error | seconds |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        errors = row["errors"]
        mean, seeds = sum(errors) / len(errors), "1 seed" if len(errors) == 1 else f"{len(errors)} seeds"
        lines.append(
            f"| {row['set']} | {row['rows']:,} | {row['network']} | {mean:.2%} ({seeds}) | {row['seconds']:.0f} |"
        )
    commands = "`, `".join(dict.fromkeys(row["command"] for row in result["rows"]))
    return "\n".join(lines) + "\n" + _source({**result, "command": commands})


def text(result: dict[str, Any]) -> str:
    """Accuracies over folds, and the seconds of one."""
    titles = {
        "average": "gradwise, `AverageWords`",
        "filters": "gradwise, `ConvolveWords`",
        "gated units": "gradwise, `ReadWords`",
        "TF-IDF": "TF-IDF and logistic regression (scikit-learn)",
        "TF-IDF of pairs": "the same with pairs of words",
    }
    lines = ["| | accuracy, ± standard error | seconds of a processor |", "|---|---|---|"]
    for method, each in result["methods"].items():
        accuracy = [100 * one["accuracy"] for one in each]
        spread = statistics.stdev(accuracy) / math.sqrt(len(accuracy)) if len(accuracy) > 1 else math.nan
        seconds = statistics.mean(one["seconds"] for one in each)
        lines.append(f"| {titles[method]} | {statistics.mean(accuracy):.1f} ± {spread:.1f} % | {seconds:.0f} |")
    return "\n".join(lines) + "\n" + _source(result)


def kinds(result: dict[str, Any]) -> str:
    """Networks that share parameters: milliseconds of an update, and how many times longer each peer takes."""
    peers = ["torch eager", "torch.compile", "Keras on JAX"]
    lines = ["| network | on | ms an update | " + " | ".join(peers) + " | of a population, per network |"]
    lines.append("|" + "---|" * (4 + len(peers)))
    for row in result["rows"]:
        update = 1e3 * row["seconds"]["gradwise"] * row["batch"] / row["examples"]
        ratios = [f"{row['ratios'][peer]:.1f}×" if peer in row["ratios"] else "" for peer in peers]
        each = ""
        if "population" in row and "torch eager" in row["seconds"]:
            each = f"{row['seconds']['torch eager'] / row['population']:.0f}× of {row['slots']}"
        lines.append(f"| {row['title']} | {row['on'].upper()} | {update:.2f} | {' | '.join(ratios)} | {each} |")
    asked = result["asked"]
    for name, on in (("wanted", "cpu"), ("wanted", "gpu")):
        each = f"≥ {asked['population']:g}×" if on == "gpu" else ""
        lines.append(f"| {name} | {on.upper()} | | " + f"≥ {asked[on]:g}× | " * len(peers) + f"{each} |")
    told = ""
    for machine, date, command in dict.fromkeys(
        (row["machine"], row["date"], row["command"]) for row in result["rows"]
    ):
        loads = [row["load"] for row in result["rows"] if (row["machine"], row["command"]) == (machine, command)]
        told += f"\n{machine}, mean load {min(loads)} to {max(loads)}; {date}; `{command}`.\n"
    return "\n".join(lines) + "\n" + told


def defaults_quality(result: dict[str, Any]) -> str:
    lines = [
        "| data | metric | gradwise, perceptron | seconds | scikit-learn's default network | seconds |",
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


def tables(result: dict[str, Any]) -> str:
    """The sets that are kept for the report, whatever else was measured."""
    from table_sets import HALVES
    from table_summary import SHOW

    kept = [one for one in result["results"] if one["set"] in HALVES["report"]]
    return (SHOW["tables"](kept) + "\n" + _source(result)) if kept else ""


def tables_ablation(result: dict[str, Any]) -> str:
    from table_summary import SHOW

    return SHOW["tables_ablation"](result["results"]) + "\n" + _source(result)


def tables_tabm(result: dict[str, Any]) -> str:
    """TabM-D on what it was run on, beside what the main table has of the same splits."""
    from table_summary import show_errors, show_ratios, show_times

    done = {(one["set"], one["seed"]) for one in result["results"]}
    others = json.loads((HERE / "results" / "tables.json").read_text())["results"]
    others = [one for one in others if (one["set"], one["seed"]) in done and one["model"] in ("gradwise", "realmlp")]
    results = sorted([*others, *result["results"]], key=lambda one: one["set"])
    parts = [show(results) for show in (show_errors, show_ratios, show_times)]
    return "\n\n".join(parts) + "\n" + _source(result)


def tables_search(result: dict[str, Any]) -> str:
    """The search beside one fit and the others."""
    from table_summary import show_search

    return show_search(with_peers(result)) + "\n" + _source(result) + _sources_of_peers(result)


def tables_search_seeds(result: dict[str, Any]) -> str:
    """The search beside one fit, on several splits."""
    from table_summary import SEARCH_TARGETS, show_search

    own = [one for one in SEARCH_TARGETS if "gradwise" in one]
    return show_search(result["results"], own) + "\n" + _source(result)


def effort(result: dict[str, Any]) -> str:
    from effort import show

    return show(result["results"]) + "\n" + _source(result)


def tables_search_gpu(result: dict[str, Any]) -> str:
    from table_summary import GPU_SEARCH_TARGETS, show_search

    return show_search(with_peers(result), GPU_SEARCH_TARGETS) + "\n" + _source(result) + _sources_of_peers(result)


def with_peers(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a search and of the peers in its run; those that were not in it, from other runs of its splits."""
    return [*result["results"], *(one for _, others in _peers_elsewhere(result) for one in others)]


def _peers_elsewhere(result: dict[str, Any]) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Other runs, each with what it has of the peers that are missing."""
    splits = {(one["set"], one["seed"]) for one in result["results"]}
    models, found = {one["model"] for one in result["results"]}, []
    for name in ("tables_search_autogluon", "tables"):
        peers = [peer for peer in ("gradwise", "lightgbm-search", "realmlp-5") if peer not in models]
        peers += ["realmlp"] if not models & {"realmlp", "realmlp-5"} else []
        stored = json.loads((HERE / "results" / f"{name}.json").read_text())
        others = [
            {**one, "elsewhere": True}
            for one in stored["results"]
            if (one["set"], one["seed"]) in splits and one["model"] in peers
        ]
        found += [(stored, others)] if others else []
        models |= {one["model"] for one in others}
    return found


def _sources_of_peers(result: dict[str, Any]) -> str:
    """Which columns are of another run, and of which."""
    from table_models import TITLES

    lines = ""
    for stored, others in _peers_elsewhere(result):
        told = "; ".join(TITLES[model] for model in dict.fromkeys(one["model"] for one in others))
        lines += f"\nOf another run: {told} ({_source(stored).strip().removesuffix('.')}).\n"
    return lines


def anytime(result: dict[str, Any]) -> str:
    """The section of docs/search.md: its title stands only where there is something to read."""
    from table_summary import SHOW

    title = "### What more time is worth\n\nThe same searches and peers, given from a few seconds to many:\n\n"
    picture = "\n![Error as a multiple of one fit's, by the seconds given](pictures/anytime.png)\n"
    return title + SHOW["anytime"](result["results"]) + "\n" + picture + _source(result)


def anytime_long(result: dict[str, Any]) -> str:
    """Searches of many minutes, a line each."""
    lines = ["| set | seconds given | seconds taken | error |", "|---|---|---|---|"]
    for one in result["results"]:
        error = f"{one['error']:.4g}" if one["kind"] == "numbers" else f"{one['error']:.2%}"
        lines.append(f"| {one['set']} | {one['budget']:.0f} | {one['seconds']:.0f} | {error} |")
    return "\n".join(lines) + "\n" + _source(result)


def tables_gpu(result: dict[str, Any]) -> str:
    from table_summary import SHOW

    return SHOW["tables_gpu"](result["results"]) + "\n" + _source(result)


def shown(result: dict[str, Any]) -> str:
    return f"```\n$ {result['shown']}\n" + result["output"].strip("\n") + "\n```\n" + _source(result)


# How many times as many trials an hour as Optuna with PyTorch: on two cores by epochs, on a GPU by PyTorch's processes.
OPTUNA_WANTED = {40: 2.5, 8: 1.2}
OPTUNA_GPU_WANTED = {"1": 150, "8": 30}


def search_vs_optuna(result: dict[str, Any]) -> str:
    hours = result["trials_an_hour"]
    title = (
        "A random search in Bergstra and Bengio's space on 10 000 MNIST digits: "
        f"the same {result['trials']} recipes of {result['epochs']} epochs, 2 processes on each side.\n\n"
    )
    lines = ["| | trials an hour |", "|---|---|"]
    lines += [f"| gradwise | {hours['gradwise']:.0f} |", f"| Optuna + PyTorch eager | {hours['optuna']:.0f} |"]
    wanted = OPTUNA_WANTED.get(result["epochs"])
    asked = "" if wanted is None else f" (wanted: ≥ {wanted:g}×)"
    return title + "\n".join(lines) + f"\n\nRatio: **{result['ratio']:.2f}×**{asked}.\n" + _source(result)


def search_vs_optuna_gpu(result: dict[str, Any]) -> str:
    title = (
        f"The same space on a GPU, the paper's own stopping rule: {result['trials']} trials of "
        f"{result['mean_epochs']:.0f} epochs on average in {result['seconds']:.0f} s, compiling included. PyTorch's "
        "time per update is measured on a sample of the same recipes and multiplied by the updates that gradwise "
        "ran.\n\n"
    )
    lines = [
        "| PyTorch eager processes | hours for these trials | gradwise is faster by | wanted |",
        "|---|---|---|---|",
    ]
    for count, peer in result["peers"].items():
        wanted = OPTUNA_GPU_WANTED.get(str(count))
        asked = "" if wanted is None else f"≥ {wanted}×"
        lines.append(f"| {count} | {peer['seconds'] / 3600:.1f} | **{peer['ratio']:.0f}×** | {asked} |")
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


def search_speed(result: dict[str, Any]) -> str:
    from search_speed import table

    return table(result) + "\n" + _source(result)


def data_memory(result: dict[str, Any]) -> str:
    data = result["data"] / 1e6
    lines = [
        f"| {result['rows']:,} rows of {result['inputs']} numbers ({data:.0f} MB) | file, MB | at most, MB | wanted |",
        "|---|---|---|---|",
    ]
    for form, told in result["formats"].items():
        lines.append(f"| .{form} | {told['file'] / 1e6:.0f} | {told['peak'] / 1e6:.0f} | {result['asked'] / 1e6:.0f} |")
    return "\n".join(lines) + "\n" + _source(result)


def sparse(result: dict[str, Any]) -> str:
    lines = ["| data | trained by | seconds | an epoch, s | test error | at most, MB |", "|---|---|---|---|---|---|"]
    for run in result["runs"]:
        told = f"{run['seconds']:.0f} | {run['epoch']:.2f} | {run['error']:.1%} | {run['peak'] / 1e6:,.0f}"
        named = "100,000 x 1,000,000" if run["set"] == "wide" else run["set"]
        lines.append(f"| {named} | {run['method']} | {told} |")
    return "\n".join(lines) + "\n" + _source(result)


def domains(result: dict[str, Any]) -> str:
    views = list(result["errors"])
    names = list(result["errors"][views[0]])
    lines = ["| from, to | " + " | ".join(views) + " |", "|---" * (1 + len(views)) + "|"]
    for source in names:
        for target in names:
            cells = " | ".join(f"{result['errors'][view][source][target]:.1%}" for view in views)
            lines.append(f"| {source}, {target if target != source else 'itself'} | {cells} |")
    for name, shown in (("loss", "transfer loss, 12 pairs"), ("ratio", "transfer ratio, 12 pairs")):
        form = "{:.1%}" if name == "loss" else "{:.2f}"
        cells = " | ".join(form.format(result["summary"][view][name]) for view in views)
        lines.append(f"| {shown} | {cells} |")
    return "\n".join(lines) + "\n" + _source(result)


def sampled_reconstruction(result: dict[str, Any]) -> str:
    titles = {"dense": "dense", "torch": "dense, PyTorch"}
    others = [name for name in titles if name in result["runs"][0]]
    cells = " | ".join(f"{titles[name]}, ms | times as fast" for name in others)
    lines = [f"| inputs that are not 0 | sampled, ms an update | {cells} |", "|---" * (2 + 2 * len(others)) + "|"]
    for run in result["runs"]:
        beside = " | ".join(f"{1e3 * run[name]:.1f} | {run[name] / run['sampled']:.1f}" for name in others)
        lines.append(f"| {run['density']:.1%} | {1e3 * run['sampled']:.2f} | {beside} |")
    return "\n".join(lines) + "\n" + _source(result)


def profile_cost(result: dict[str, Any]) -> str:
    head = "| `gradwise fit` | processor seconds | `--profile` adds, in pairs | by its own account | if compiled "
    lines = [head + "| wanted |", "|---|---|---|---|---|---|"]
    for name, told in result["cases"].items():
        seconds = statistics.median(without for without, _ in told["pairs"])
        cost = f"{told['cost']:+.1%} ± {told['error']:.1%}"
        own = f"{told['own']:.1%} | {told['own_first']:.1%}"
        lines.append(f"| {name} | {seconds:.1f} | {cost} | {own} | < {result['asked']:.0%} |")
    return "\n".join(lines) + "\n" + _source(result)


def search_memory(result: dict[str, Any]) -> str:
    """The most that the process held in every stretch of trials."""
    cases = result["readings"]
    head = " | ".join(f"{case}: MB | memory maps" for case in cases)
    lines = [f"| trials | {head} |", "|" + "---|" * (1 + 2 * len(cases))]
    for several in zip(*cases.values(), strict=True):
        cells = " | ".join(f"{one['megabytes']:.0f} | {one['maps']:,}" for one in several)
        lines.append(f"| {100 * round(several[0]['trials'] / 100)} | {cells} |")
    grown = " | ".join(f"{one['megabytes']:+.1%} | {one['maps']:+.1%}" for one in result["growth"].values())
    wanted = " | ".join([f"< {result['asked']:.0%}"] * 2 * len(cases))
    lines += [f"| the last {result['last']} add | {grown} |", f"| wanted | {wanted} |"]
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
    title = "How many times longer a peer takes for the same work; below 1 it is faster than gradwise. "
    title += "Of L-BFGS, conjugate gradient and SAG at least 1× is wanted.\n\n"
    return title + "\n".join(lines) + "\n" + _source(result)


def break_even(result: dict[str, Any]) -> str:
    lines = ["| examples | SGD, s | L-BFGS, s |", "|---|---|---|"]
    for row in result["rows"]:
        times = (row[name] for name in ("stochastic", "batch"))
        cells = " | ".join(f"more than {result['limit']:g}" if time is None else f"{time:.3f}" for time in times)
        lines.append(f"| {row['examples']:,} | {cells} |")
    title = f"Seconds to a training loss of {result['target']:g}: {result['sentence']}.\n\n"
    return title + "\n".join(lines) + "\n" + _source(result)


def _half_width(differences: list[float]) -> float:
    """Half of a 95 % interval of a mean, by Student's t."""
    from scipy.stats import t

    count = len(differences)
    return float(t.ppf(0.975, count - 1)) * statistics.stdev(differences) / count**0.5


def vsgd(result: dict[str, Any]) -> str:
    """Test errors of vSGD and of tuned SGD, with their paired difference."""
    lines = ["| set | examples, inputs | vSGD | SGD, its rate | difference, points | ratio | wanted |"]
    lines.append("|---" * 7 + "|")
    missed = []
    for name, one in result["sets"].items():
        mine, other = (statistics.mean(one[method]) for method in ("vsgd", "sgd"))
        gaps = [100 * (a - b) for a, b in zip(one["vsgd"], one["sgd"], strict=True)]
        ratio = mine / other
        missed += [] if ratio <= result["wanted"] else [name]
        lines.append(
            f"| {name} | {one['examples']:,} × {one['inputs']} | {mine:.2%} | {other:.2%} at {one['rate']:g} | "
            f"{statistics.mean(gaps):+.2f} ± {_half_width(gaps):.2f} | "
            f"{ratio:.2f}× | {'' if ratio <= result['wanted'] else '**missed**: '}≤ {result['wanted']:g}× |"
        )
    widths, rates = "-".join(map(str, result["widths"])), ", ".join(f"{rate:g}" for rate in result["rates"])
    title = (
        f"Test error, mean over {result['seeds']} seeds, and the paired difference with its 95 % interval (of seeds, "
    )
    title += (
        "not of other test examples): vSGD with untouched defaults against plain SGD, whose rate is the best of five "
    )
    title += f"({rates}) by validation error. {widths} tanh units, mini-batches of 32, {result['epochs']} epochs, the "
    title += f"epoch chosen by {result['valid']:,} validation examples. "
    title += f"**vSGD misses on {' and '.join(missed)}**" if missed else "vSGD is near tuned SGD on all"
    return title + ".\n\n" + "\n".join(lines) + "\n" + _source(result)


def reestimation(result: dict[str, Any]) -> str:
    """Milliseconds of an update by shape and way, and which way gradwise takes."""
    lines = ["| net | vectorised | one by one | a call each | vectorised / one by one | of processor time | taken |"]
    lines.append("|---" * 7 + "|")
    for row in result["rows"]:
        times = " | ".join(f"{row['milliseconds'][way]:.3g}" for way in ("together", "in turn", "calls"))
        ratios = [
            f"{row[name][1]:.2f} ({row[name][0]:.2f} – {row[name][2]:.2f})" for name in ("ratio", "processor_ratio")
        ]
        taken = "vectorised" if row["used"] == "together" else "one by one"
        lines.append(f"| {row['shape']}-10 | {times} | {' | '.join(ratios)} | {taken} |")
    title = f"Milliseconds an update of a re-estimation: {result['rates']} rates, {result['examples']} examples, B = "
    title += f"{result['size']}; shortest of {result['rounds']} rounds. The ratios are medians with quartiles; below 1 "
    worst = max(row["difference"] for row in result["rows"])
    title += f"vectorised is faster. Losses agree within {worst:.0e} of their size.\n\n"
    return title + "\n".join(lines) + "\n" + _source(result)


def _layer_settings(layers: list[dict[str, Any]]) -> str:
    """How the layers of a stack were learned, bottom up."""
    strength = {"denoising": "noise", "contractive": "contraction"}
    return "; ".join(
        f"{strength[one['learner']]} {one['strength']:g}, rate {one['rate']:g}, {one['epochs']:g} epochs"
        for one in layers
    )


def few_labels(result: dict[str, Any]) -> str:
    """Mean test errors, and the paired difference from the same network that was not pre-trained."""
    errors = result["errors"]
    names = {
        "same layers": "the same sigmoid layers, not pre-trained",
        "recommended": "two layers of rectifiers, not pre-trained",
        "DAE-3": "three denoising layers",
        "CAE-2": "two contractive layers",
        "DBN-3": "deep belief net of three layers",
    }
    lines = ["| start | " + " | ".join(f"{int(n):,} labels" for n in errors) + " |", "|---" * (1 + len(errors)) + "|"]
    for key, name in names.items():
        cells = []
        for by_start in errors.values():
            mean = 100 * statistics.mean(by_start[key])
            gains = [100 * (one - other) for one, other in zip(by_start[key], by_start["same layers"], strict=True)]
            beside = f" ({statistics.mean(gains):+.2f} ± {_half_width(gains):.2f})" if key != "same layers" else ""
            cells.append(f"{mean:.2f} %{beside}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    seeds = len(next(iter(errors.values()))["same layers"])
    tuned = {name: _layer_settings(one) for name, one in result["layers"].items() if name != "DBN-3"}
    title = (
        f"Test error on MNIST, mean over {seeds} seeds; in brackets the paired difference from the first row with its "
        "95 % interval. Wanted: denoising and contractive layers below the first row at 100 and 1,000 labels. Layers "
        "of 1,000 units, pre-trained on all 60,000 images; for every row 1,000 further labels choose when to stop and "
        "one of six fine-tunings (rate, dropout). Layers' settings by Algorithm 1 on draws used for nothing else: "
        + ". ".join(f"{names[name]}: {text}" for name, text in tuned.items())
        + ".\n\n"
    )
    return title + "\n".join(lines) + "\n" + _source(result)


def transfer(result: dict[str, Any]) -> str:
    """Test errors with few labels, alone and on the layers of another run, and the paired difference."""
    names = {"alone": "alone", "taken": "layers taken", "frozen": "layers held still"}
    lines = ["| labels | " + " | ".join(names.values()) + " |", "|---" * 4 + "|"]
    for labels, by_way in result["errors"].items():
        cells = []
        for way in names:
            mean, half = _paired(by_way[way], by_way["alone"])
            beside = f" ({100 * mean:+.2f} ± {100 * half:.2f})" if way != "alone" else ""
            cells.append(f"{statistics.fmean(by_way[way]):.2%}{beside}")
        lines.append(f"| {int(labels):,} | " + " | ".join(cells) + " |")
    tuned = ", ".join(f"{100 * error:.1f} % at {factor}" for factor, error in result["tuned"].items())
    title = (
        f"Test error on USPS, mean over {result['seeds']} seeds; in brackets the paired difference from the network "
        "alone with its 95 % interval. The layers are those of `gradwise fit` on "
        f"{result['digits']:,} of MNIST's digits, made as large. As many further labels choose when to stop. The share "
        f"of the rate that layers taken over have, {result['factor']:g}, was chosen by validation error on draws used "
        f"for nothing else ({tuned}).\n\n"
    )
    return title + "\n".join(lines) + "\n" + _source(result)


def semi_supervised_embedding(result: dict[str, Any]) -> str:
    """Test errors with few labels, alone and with neighbours embedded, beside those of the paper."""
    lines = ["| labels | network alone | neighbours embedded | paper, alone | paper, EmbedNN |", "|---" * 5 + "|"]
    for labels, by_way in result["errors"].items():
        own = [f"{statistics.fmean(by_way[way]):.2%}" for way in ("alone", "embedded")]
        theirs = [f"{one:.2f}%" for one in result["paper"][labels]]
        lines.append(f"| {int(labels):,} | " + " | ".join((*own, *theirs)) + " |")
    settings = result["settings"]
    draws = "one draw" if settings["seeds"] == 1 else f"{settings['seeds']} draws"
    title = (
        f"Test error on MNIST, {draws} of {settings['rows']:,} training digits of which so many have a label (the "
        f"paper's 60,000). Two layers of 256 units, {settings['epochs']:g} epochs, `coefficient=0.1`, `margin=10`, at "
        "the output; "
        "chosen on another draw, by digits that are neither in it nor in the test set.\n\n"
    )
    return title + "\n".join(lines) + "\n" + _source(result)


def _wider(one: dict[str, Any]) -> str:
    """A mark where layers of another size than 1,000 units were better on the validation part."""
    return f" ({one['units']:,} units)" if one.get("units", 1000) != 1000 else ""


def larochelle(result: dict[str, Any]) -> str:
    """The eight sets: how hard ours are, and what Algorithm 1 found."""
    machines = {
        one["set"]: one for one in json.loads((HERE / "results" / "larochelle_svm.json").read_text())["results"]
    }
    found: dict[str, dict[str, Any]] = {}
    for one in result["sets"]:
        found.setdefault(one["set"], {})[one["learner"]] = one
    lines = [
        "| set | RBF SVM here, published | SDAE-3 | DBN-3 | best published | reached by | chosen on validation |",
        "|---" * 7 + "|",
    ]
    either = chosen = comparable = 0
    for name, machine in machines.items():
        by = found[name]
        best = min(by.values(), key=lambda one: one["valid"])
        reached = [learner for learner in ("SDAE-3", "DBN-3") if by[learner]["reached"]]
        if name != "convex":
            comparable += 1
            either += bool(reached)
            chosen += best["reached"]
        tests = " | ".join(f"{by[learner]['test']:.2f}{_wider(by[learner])}" for learner in ("SDAE-3", "DBN-3"))
        published = f"{best['published']:.2f} ± {best['half']:.2f} ({best['whose']})"
        lines.append(
            f"| {name} | {machine['ours']:.2f}, {machine['published']:.2f} | {tests} | {published} | "
            f"{', '.join(reached) or 'none'} | {best['learner']}: {'reached' if best['reached'] else 'missed'} |"
        )
    seconds = sum(one["seconds"] for one in result["sets"])
    title = (
        "Test error in % on 50,000 images, three layers of 1,000 units (the first up to twice as wide) unless wider "
        "ones were better on the validation part, every layer's settings and the fine-tuning's by Algorithm 1 with the "
        "3 best kept. Published as commonly quoted. Reached: inside or below the published interval.\n\n"
    )
    tail = (
        f"\nOf the {comparable} sets that are as hard as the published ones, reached on {either} by one of the two "
        f"learners and on {chosen} by the learner that validation chooses (wanted: {comparable}). The convex images "
        f"made here are easier than the published ones, as the support vector machine shows: they do not count. "
        f"{seconds:.0f} s of work in all.\n"
    )
    return title + "\n".join(lines) + "\n" + tail + _source(result)


def _paired(one: list[float], other: list[float]) -> tuple[float, float]:
    """The mean difference of paired values, with half of its 95 % interval."""
    apart = [a - b for a, b in zip(one, other, strict=True)]
    return statistics.fmean(apart), _half_width(apart)


def probe_error(result: dict[str, Any]) -> str:
    """Errors of a linear probe on plain and on denoising codes, and their paired difference."""
    level, report = str(result["level"]), result["report"]
    lines = ["| set | plain | denoising | difference |", "|---|---|---|---|"]
    apart, better, worse = [], 0, 0
    for name in report["sets"]:
        plain, noisy = report["errors"][name]["0.0"], report["errors"][name][level]
        mean, half = _paired(noisy, plain)
        better += mean + half < 0
        worse += mean - half > 0
        apart.append(mean)
        cells = [f"{100 * statistics.fmean(each):.2f} %" for each in (plain, noisy)]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {100 * mean:+.2f} ± {100 * half:.2f} |")
    seeds, chosen = len(report["seeds"]), result["choice"]
    intro = (
        f"Test error of a logistic regression on the codes of one layer of {result['units']} units, mean over {seeds} "
        "seeds, each with the same rows and first weights for both; the paired difference with its 95 % interval. The "
        f"masked share, {level} of {', '.join(map(str, result['levels']))}, was chosen on {', '.join(chosen['sets'])} "
        f"with other seeds.\n\n"
    )
    told = f"\nMean difference over the sets: {100 * statistics.fmean(apart):+.2f} points. Clearly better on {better} "
    told += f"and clearly worse on {worse} of {len(apart)} sets.\n"
    return intro + "\n".join(lines) + "\n" + told + _source(result)


def gaussian_rates(result: dict[str, Any]) -> str:
    """The chosen learning rates beside the one that was a custom, on the sets that chose nothing."""
    custom, report = str(result["custom"]), result["report"]
    words = {"fixed": "precision 1", "learned": "learned precisions"}
    lines = [
        f"| set | units | score at {custom} | at the chosen rate | difference | probe error |",
        "|---|---|---|---|---|---|",
    ]
    for kind, rate in result["rates"].items():
        for name in report["sets"]:
            by_rate = report["measured"][kind][name]
            scores = [[one["score"] for one in by_rate[each]] for each in (custom, str(rate))]
            errors = [statistics.fmean(one["probe_error"] for one in by_rate[each]) for each in (custom, str(rate))]
            mean, half = _paired(scores[1], scores[0])
            lines.append(
                f"| {name} | {words[kind]} | {statistics.fmean(scores[0]):.3f} | {statistics.fmean(scores[1]):.3f} | "
                f"{mean:+.3f} ± {half:.3f} | {100 * errors[0]:.1f} → {100 * errors[1]:.1f} % |"
            )
    rates = " and ".join(f"{rate} for {words[kind]}" for kind, rate in result["rates"].items())
    chosen_on = ", ".join(result["choice"]["sets"])
    intro = (
        "Score-matching loss of test rows for each input (lower is better; without hidden units -0.5), "
        f"{result['units']} units, mean over {len(report['seeds'])} seeds. Chosen on {chosen_on} with other seeds: "
        f"{rates}.\n\n"
    )
    return intro + "\n".join(lines) + "\n" + _source(result)


def speed(result: dict[str, Any]) -> str:
    """One epoch, ours and the peers'."""
    lines = ["| | seconds an epoch |", "|---|---|"]
    lines += [f"| {name} | {seconds:.3f} |" for name, seconds in result["seconds"].items()]
    return f"{result['data']}:\n\n" + "\n".join(lines) + f"\n\nRatio: **{result['ratio']:.1f}×**.\n" + _source(result)


def watched(result: dict[str, Any]) -> str:
    lines = [f"| a look every {result['every']} updates | times as long as without |", "|---|---|"]
    lines += [f"| {row['net']} | {row['ratio']:.2f} |" for row in result["rows"]]
    return "\n".join(lines) + "\n" + _source(result)


def check_times(result: dict[str, Any]) -> str:
    lines = ["| a full check | seconds |", "|---|---|"]
    lines += [f"| {name} | {value:.0f} |" for name, value in result["seconds"].items()]
    return "\n".join(lines) + "\n" + _source(result)


PEERS = {
    "check_grads": "check_grads",
    "gradcheck": "gradcheck",
    "overfit_batches": "overfit_batches",
    "skore": "skore",
}


def peer_rows(peers: dict[str, Any], name: str) -> dict[str, Any]:
    """What a peer reported, by bug."""
    return dict(peers.get("parts", {}).get(name, {}).get("bugs", {}))


def _peer_words(row: dict[str, Any] | None) -> str:
    """What a peer said of a bug: found, missed, or that it could not be asked."""
    if row is None:
        return ""
    row = row.get("64 bits", row)  # the precision in which it does best
    return "failed" if row.get("failed") else "found" if row["found"] else "missed"


def check_problems(result: dict[str, Any]) -> str:
    """Planted bugs with what was found, beside the peers; then the sound problems."""
    path = HERE / "results" / "check_peers.json"
    peers = json.loads(path.read_text()) if path.is_file() else {}
    said = {name: peer_rows(peers, name) for name in PEERS}
    planted = [row for row in result["problems"] if row["kind"] == "bug"]
    sound = [row for row in result["problems"] if row["kind"] == "sound"]
    found = sum(row["found"] for row in planted)
    alarms = [row["name"] for row in sound if row["false"]]
    text = f"gradwise names {found} of {len(planted)} planted bugs at their place; "
    text += f"{len(alarms)} of {len(sound)} sound problems raise an error. "
    text += "An empty cell: the tool does not speak of such things, or no twin of the bug was written for it.\n\n"
    lines = ["| planted bug | gradwise | " + " | ".join(PEERS.values()) + " |", "|" + "---|" * (2 + len(PEERS))]
    for row in planted:
        ours = ", ".join(row["told"]) if row["found"] else "**missed**"
        ours += f" (and {', '.join(row['false'])})" if row["false"] else ""
        theirs = " | ".join(_peer_words(said[name].get(row["name"])) for name in PEERS)
        lines.append(f"| {row['name'].replace('_', ' ')} | {ours} | {theirs} |")
    lines += ["", "| sound problem | errors | warnings |", "|---|---|---|"]
    for row in sound:
        lines.append(
            f"| {row['name'].replace('_', ' ')} | {', '.join(row['false']) or 'none'} | {', '.join(row['warned'])} |"
        )
    return text + "\n".join(lines) + "\n" + _source(result)


def check_codes() -> str:
    """Every code with its title, level and row."""
    sys.path.insert(0, str(HERE.parent))
    from gradwise.checking.codes import CODES

    lines = ["| code | title | level | row |", "|---|---|---|---|"]
    for name, code in CODES.items():
        page = f"[{name}](../gradwise/checking/pages/{name}.md)"
        lines.append(f"| {page} | {code.title} | {code.level} | {code.row} |")
    return "\n".join(lines) + "\n"


TABLES = {
    "domains": domains,
    "sampled_reconstruction": sampled_reconstruction,
    "sparse": sparse,
    "few_labels": few_labels,
    "sequences": sequences,
    "trees": trees,
    "stage_pretraining": stage_pretraining,
    "larochelle": larochelle,
    "transfer": transfer,
    "semi_supervised_embedding": semi_supervised_embedding,
    "dae_speed_cpu": speed,
    "dae_speed_gpu": speed,
    "rbm_speed": speed,
    "probe_error": probe_error,
    "gaussian_rates": gaussian_rates,
    "demo": shown,
    "optimiser_peers": optimiser_peers,
    "break_even": break_even,
    "vsgd": vsgd,
    "reestimation_cpu": reestimation,
    "reestimation_gpu": reestimation,
    "search_demo": shown,
    "check_demo": shown,
    "watched_cpu": watched,
    "watched_gpu": watched,
    "search_vs_optuna": search_vs_optuna,
    "search_vs_optuna_gpu": search_vs_optuna_gpu,
    "search_overhead": search_overhead,
    "search_memory": search_memory,
    "data_memory": data_memory,
    "profile_cost": profile_cost,
    "search_speed_cpu": search_speed,
    "search_speed_gpu": search_speed,
    "hyperlearner": hyperlearner,
    "fit_vs_peers_cpu": fit_vs_peers,
    "fit_vs_peers_gpu": fit_vs_peers,
    "startup": startup,
    "suite_time": suite_time,
    "defaults_quality": defaults_quality,
    "default_choices": default_choices,
    "tables": tables,
    "tables_ablation": tables_ablation,
    "tables_gpu": tables_gpu,
    "anytime_long": anytime_long,
    "tables_search": tables_search,
    "tables_search_autogluon": tables_search,
    "tables_search_seeds": tables_search_seeds,
    "effort": effort,
    "anytime": anytime,
    "tables_search_gpu": tables_search_gpu,
    "tables_tabm": tables_tabm,
    "export": exported,
    "label_errors": label_errors,
    "example_cost": example_cost,
    "images": images,
    "language": language,
    "kinds": kinds,
    "text": text,
}


def filled(text: str) -> str:
    """The document with every table whose result exists."""
    text = _put(text, "check_codes", check_codes())
    path = HERE / "results" / "check.json"
    if path.is_file():
        result = json.loads(path.read_text())
        text = _put(text, "check_times", check_times(result)) if "seconds" in result else text
        text = _put(text, "check_problems", check_problems(result)) if "problems" in result else text
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
        *(
            HERE.parent / "docs" / f"{name}.md"
            for name in (
                *("design", "optimisers", "features", "check", "search", "tables", "export", "fit", "images"),
                *("language", "sequences", "trees", "sparse", "text"),
            )
        ),
    ):
        before = document.read_text()
        after = filled(before)
        if chosen.check and before != after:
            sys.exit(f"{document.name} does not hold what benchmarks/results says: run benchmarks/write_tables.py")
        if not chosen.check:
            document.write_text(after)


if __name__ == "__main__":
    main()
