"""Algorithm 1 from the command line: what is left behind, gone on with, and refused."""

import json
import shutil

import numpy as np
import pytest

from gradwise.pretraining.stack import Pretrained
from gradwise.records.fit import read_fit

PLAN = "layerwise(layers=denoising:4-16x2, keep=2, settings=2, tunings=2)"
SHORT = (
    *("--set", "layers.stopping=Off", "--set", "layers.stopping.epochs=3"),
    *("--set", "stopping=Off", "--set", "stopping.epochs=3"),
)
SEARCH = ("search", "data.npz", "--strategy", PLAN, "--on", "here", *SHORT)


def write_data(folder) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    np.savez(folder / "data.npz", X=digits.images[:150].astype(np.uint8), y=digits.target[:150])


@pytest.mark.slow
def test_a_run_leaves_one_network_and_how_it_was_chosen_and_goes_on_when_killed(here, gradwise) -> None:
    write_data(here)
    assert gradwise(*SEARCH, "--out", "whole", "--quiet").code == 0
    found = read_fit(here / "whole")
    told = found.evidence.layerwise
    assert len(told.trainings) == 2 + 2 * 2 + 2 * 2
    assert [len(level) for level in told.kept] == [2, 2, 2]
    assert isinstance(found.recipe.model, Pretrained)
    widths = found.recipe.model.mlp.widths
    assert widths == told.widths[-1][0]
    assert [layer.model.widths for layer in found.recipe.model.layers] == [(width,) for width in widths]
    assert {width for level in told.widths for stack in level for width in stack} <= {4, 6, 8, 11, 16}
    assert len({tuple(stack) for stack in told.widths[1]}) > 1  # settings differ in their widths too
    assert "units of the best" in (here / "whole" / "report.html").read_text()
    assert min(told.scores[-1]) == pytest.approx(found.metrics["valid"]["error_rate"], abs=1e-6)
    assert "Layer by layer" in (here / "whole" / "report.html").read_text()
    assert gradwise("predict", "whole", "data.npz", "--out", "said.csv").code == 0
    assert len((here / "said.csv").read_text().splitlines()) == 151

    # Killed half way: some trainings are there, the result is not.
    shutil.copytree(here / "whole", here / "half")
    for name in ("result.json", "model.safetensors", "report.html", "recipe.json", "history.parquet"):
        (here / "half" / name).unlink()
    for number in (3, 5, 9):
        (here / "half" / "layerwise" / f"{number}.safetensors").unlink()
    assert gradwise(*SEARCH, "--out", "half", "--resume", "--quiet", "--on", "workers:2").code == 0
    half = read_fit(here / "half")
    assert half.evidence.layerwise.kept == told.kept
    # A training beside others and one alone round differently in their last bits.
    np.testing.assert_allclose(half.evidence.layerwise.scores, told.scores, atol=1e-6)
    assert half.metrics["test"]["log_loss"] == pytest.approx(found.metrics["test"]["log_loss"], rel=1e-4)
    again = gradwise(*SEARCH, "--out", "whole", "--resume", "--json")
    assert json.loads(again.out)["test"] == found.test
    changed = gradwise(*SEARCH, "--out", "whole", "--resume", "--seed", "5")  # finished, but not what is asked for
    assert (changed.code, "started with other data" in changed.err) == (2, True)
    (here / "half" / "result.json").unlink()
    other = gradwise(*SEARCH, "--out", "half", "--resume", "--seed", "5")
    assert other.code == 2
    assert "started with other data" in other.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--trials", "5"), "layerwise has its own settings"),
        (("--on", "workers:0"), "unknown device"),
        (("--range", "optimiser.learning_rate=log(1e-4, 1e-1)"), "--range"),
        (("--set", "model.widths=5"), "the layers are given by --pretrain"),
        (("--set", "layers.model.widths=5"), "widths are given by layers="),
    ],
)
def test_what_means_nothing_here_is_refused_in_a_line(here, gradwise, more, said) -> None:
    write_data(here)
    answer = gradwise(*SEARCH, *more)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_dry_run_counts_the_trainings(here, gradwise) -> None:
    write_data(here)
    answer = gradwise(*SEARCH, "--dry-run")
    assert answer.code == 0
    assert answer.out == "2 levels, denoising:4-16x2, 2 settings each, the 2 best kept: 10 trainings.\n"
    assert json.loads(gradwise(*SEARCH, "--dry-run", "--json").out)["trainings"] == 10


def test_stacks_of_fewer_layers_compete_on_request(here, gradwise) -> None:
    """Fine-tuned too, and one of them can win: the record holds as many layers as the winner has."""
    write_data(here)
    plan = "layerwise(layers=denoising:4-16x2, keep=1, settings=1, tunings=1, shallower=true)"
    words = ("search", "data.npz", "--strategy", plan, "--on", "here", *SHORT)
    answer = gradwise(*words, "--dry-run")
    assert answer.out.endswith("the 1 best kept, stacks of fewer layers fine-tuned too: 4 trainings.\n")
    assert gradwise(*words, "--out", "run", "--quiet").code == 0
    found = read_fit(here / "run")
    told = found.evidence.layerwise
    assert [training.level for training in told.trainings].count(3) == 2
    assert len(found.recipe.model.layers) == len(told.widths[-1][0])
    bad = gradwise(*words[:3], "layerwise(shallower=yes)")
    assert (bad.code, "expected true or false for `shallower`; got 'yes'" in bad.err) == (2, True)
