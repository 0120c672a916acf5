"""Errors for the user: what is wrong, where, and what to do.

The command line catches two kinds, so each has its own class; a bug in gradwise stays an ordinary exception with its
traceback.
"""

import difflib
from collections.abc import Iterable


class RequestError(ValueError):
    """The request is invalid: a file, an option or a value is wrong. Exit code 2."""


class WorkError(RuntimeError):
    """The request is valid but the work failed: the disk is full, the run diverged. Exit code 1."""


# What people are used to calling things, and the last words of what they may be called here, the most likely first.
# These apply only where the name itself is unknown.
_ALIASES = {
    **dict.fromkeys(("lr", "learning_rate", "learning_rate_init", "eta", "eta0", "step_size"), ("learning_rate",)),
    **dict.fromkeys(("acc", "accuracy_score"), ("accuracy",)),
    **dict.fromkeys(("accuracy",), ("accuracy", "error_rate")),
    **dict.fromkeys(("error", "zero_one_loss"), ("error_rate",)),
    **dict.fromkeys(("f1", "f1_score", "macro_f1", "f1_weighted", "f1_micro"), ("f1_macro",)),
    **dict.fromkeys(("precision", "macro_precision"), ("precision_macro",)),
    **dict.fromkeys(("recall", "macro_recall", "balanced_accuracy"), ("recall_macro",)),
    **dict.fromkeys(("ap", "pr_auc", "auprc", "map"), ("average_precision",)),
    **dict.fromkeys(("mse", "root_mean_squared_error", "mean_squared_error"), ("mse", "rmse")),
    **dict.fromkeys(("cross_entropy", "logloss", "nll", "neg_log_loss"), ("log_loss",)),
    **dict.fromkeys(("roc_auc", "auroc"), ("auc",)),
    **dict.fromkeys(("epochs", "max_epochs", "num_epochs", "n_epochs", "max_iter"), ("epochs",)),
    **dict.fromkeys(("batch", "batch_size", "minibatch_size"), ("batches.size",)),
    **dict.fromkeys(("hidden_layer_sizes", "hidden", "hidden_units", "layers"), ("widths",)),
    **dict.fromkeys(("dropout", "dropout_rate"), ("dropout",)),
    **dict.fromkeys(("weight_decay", "wd", "l2"), ("weight_decay", "decay")),
    **dict.fromkeys(("n_jobs", "jobs", "workers", "device", "gpu", "cuda", "backend"), ("on",)),
    **dict.fromkeys(("random_state", "random_seed"), ("seed",)),
    **dict.fromkeys(("y", "label", "labels", "class_column", "outcome"), ("target", "targets")),
    **dict.fromkeys(("exclude", "ignore_columns", "drop_columns"), ("drop",)),
    **dict.fromkeys(("output", "output_dir"), ("out",)),
    **dict.fromkeys(("scoring", "eval_metric"), ("metric",)),
    **dict.fromkeys(("cv", "n_splits", "k_fold"), ("folds",)),
    **dict.fromkeys(("timeout", "time_limit"), ("max_time", "time")),
    **dict.fromkeys(("train", "learn"), ("fit",)),
    **dict.fromkeys(("tune", "optimize", "optimise", "hpo", "automl"), ("search",)),
    **dict.fromkeys(("test", "evaluate", "score", "apply"), ("predict",)),
}
_ALIKE, _VERY_ALIKE = 0.66, 0.8  # similarity; below, a name is no misspelling of another


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")


def _likeness(word: str, other: str) -> float:
    """How likely one word is the other, misspelled: a first letter is seldom wrong."""
    ends = {other.rpartition(".")[2], other if "." in word else ""}
    found = max(difflib.SequenceMatcher(None, word, end).ratio() for end in ends)
    return found if word[:1] == other[:1] or found >= _VERY_ALIKE else 0.0


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the valid name that is meant, or misspelled, or the whole list if it is short.

    >>> nearest("learning_rat", ["learning_rate", "momentum"])
    " Did you mean 'learning_rate'?"

    A word that is used elsewhere for what has no name here is no misspelling of something else.
    """
    known, word = list(names), _plain(name)
    meant = _ALIASES.get(word, (word,))
    close = [one for end in meant for one in known if f".{_plain(one)}".endswith(f".{end}")]
    if not close and word:
        alike = {one: _likeness(word, _plain(one)) for one in known}
        least = _VERY_ALIKE if word in _ALIASES else _ALIKE
        # Of equally likely ones that with the same letters in another order, then that with the same beginning.
        close = sorted(
            (one for one in known if alike[one] >= least),
            key=lambda one: (-alike[one], sorted(_plain(one)) != sorted(word), word[:3] != _plain(one)[:3]),
        )
    if close:
        return f" Did you mean {close[0]!r}?"
    if 0 < len(known) <= 12:
        return " Choose from: " + ", ".join(known) + "."
    return ""
