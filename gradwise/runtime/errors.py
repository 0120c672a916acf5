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


# What people are used to calling things, and the last word of what they are called here.
_ALIASES = {
    **dict.fromkeys(("lr", "eta", "step_size"), "learning_rate"),
    **dict.fromkeys(("accuracy", "error"), "error_rate"),
    **dict.fromkeys(("acc", "accuracy_score"), "accuracy"),
    **dict.fromkeys(("f1", "f1_score", "macro_f1", "f1_weighted", "f1_micro"), "f1_macro"),
    **dict.fromkeys(("precision", "macro_precision"), "precision_macro"),
    **dict.fromkeys(("recall", "macro_recall", "balanced_accuracy"), "recall_macro"),
    **dict.fromkeys(("ap", "pr_auc", "auprc", "map"), "average_precision"),
    **dict.fromkeys(("mse", "root_mean_squared_error"), "rmse"),
    **dict.fromkeys(("cross_entropy", "logloss", "nll"), "log_loss"),
    **dict.fromkeys(("roc_auc", "auroc"), "auc"),
    **dict.fromkeys(("max_epochs", "num_epochs", "n_epochs"), "epochs"),
    **dict.fromkeys(("batch", "batch_size"), "batches.size"),
    **dict.fromkeys(("hidden_layer_sizes", "hidden", "layers"), "widths"),
    **dict.fromkeys(("weight_decay", "wd"), "decay"),
    **dict.fromkeys(("train", "learn"), "fit"),
    **dict.fromkeys(("tune", "optimize", "optimise", "hpo", "automl"), "search"),
    **dict.fromkeys(("test", "evaluate", "score", "apply"), "predict"),
}


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the valid name that is meant, or the closest, or the whole list if it is short.

    >>> nearest("learning_rat", ["learning_rate", "momentum"])
    " Did you mean 'learning_rate'?"
    """
    known = list(names)
    meant = _ALIASES.get(name.lower().replace("-", "_"), name.lower())
    close = [one for one in known if f".{one}".endswith(f".{meant}")][:1]
    if close := close or difflib.get_close_matches(name, known, n=1, cutoff=0.5):
        return f" Did you mean {close[0]!r}?"
    if 0 < len(known) <= 12:
        return " Choose from: " + ", ".join(known) + "."
    return ""
