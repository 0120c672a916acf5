"""Messages for the person who made the mistake."""

import pytest

from gradwise.runtime.errors import RequestError, WorkError, nearest


def test_nearest_names_the_close_one() -> None:
    assert nearest("learning_rat", ["learning_rate", "momentum"]) == " Did you mean 'learning_rate'?"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("accuracy", ["auc", "error_rate", "log_loss"], "error_rate"),
        ("acc", ["error_rate", "accuracy", "auc"], "accuracy"),  # where there is one
        ("--n-jobs", ["--json", "--on"], "--on"),
        ("--random_state", ["--max-time", "--seed"], "--seed"),
        ("--y", ["--on", "--target"], "--target"),
        ("label", ["--test", "--target"], "--target"),
        ("hidden_layer_sizes", ["model.dropout", "model.widths"], "model.widths"),
        ("dropout_rate", ["model.dropout", "split.valid"], "model.dropout"),
        ("--batch_size", ["batches.size", "--watch"], "batches.size"),
        ("Sdg", ["Sag", "Sgd"], "Sgd"),
        ("lr", ["model.widths", "optimiser.optimiser.learning_rate"], "optimiser.optimiser.learning_rate"),
        ("batch-size", ["batches.size", "split.valid"], "batches.size"),
        ("train", ["fit", "merge", "report"], "fit"),
        ("Epochs", ["stopping.spacing", "stopping.epochs"], "stopping.epochs"),
    ],
)
def test_nearest_knows_what_people_are_used_to_calling_things(name: str, known: list[str], meant: str) -> None:
    assert nearest(name, known) == f" Did you mean {meant!r}?"


OPTIONS = (
    *("--data", "--target", "--task", "--drop", "--kind", "--group", "--time", "--weight", "--test", "--metric"),
    *("--learner", "--seed", "--set", "--pretrain", "--folds", "--watch", "--out", "--overwrite", "--max-time", "--on"),
)


@pytest.mark.parametrize(
    "name",
    [
        *("accuracy", "lr", "learning-rate", "epochs", "train", "batch-size", "hidden-layer-sizes", "dropout"),
        *("dropout-rate", "features", "verbose", "momentum", "optimizer", "loss", "activation", "model"),
        *("zebra", "foo", "banana", "purple", "x"),
    ],
)
def test_nothing_is_suggested_rather_than_something_far_fetched(name: str) -> None:
    assert nearest(f"--{name}", OPTIONS) == ""


@pytest.mark.parametrize(("name", "meant"), [("--taget", "--target"), ("--max-tim", "--max-time"), ("--sed", "--seed")])
def test_misspelled_options_are_found(name: str, meant: str) -> None:
    assert nearest(name, OPTIONS) == f" Did you mean {meant!r}?"


def test_nearest_lists_a_few_and_says_nothing_of_many() -> None:
    assert nearest("zzz", ["alpha", "beta"]) == " Choose from: alpha, beta."
    assert nearest("zzz", [f"name{number}" for number in range(13)]) == ""
    assert nearest("zzz", []) == ""


@pytest.mark.parametrize(("error", "parent"), [(RequestError, ValueError), (WorkError, RuntimeError)])
def test_each_error_is_also_the_ordinary_kind(error: type[Exception], parent: type[Exception]) -> None:
    assert issubclass(error, parent)
