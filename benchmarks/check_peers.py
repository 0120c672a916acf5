"""What other tools say of the planted bugs of `tests/checking/bugs.py`, where they apply.

    python benchmarks/check_peers.py                     every part whose tool this interpreter can import
    python benchmarks/check_peers.py --only skore

The parts are merged in `benchmarks/results/check_peers.json`, so that the script may be run once where JAX is and once
where Lightning and skore are. The first run leaves the data of the planted bugs in a temporary file for the second.

- `check_grads`: `jax.test_util.check_grads` on the loss as a function of its parameters, on the bugs of gradients and
  on every sound problem, in 64 bits (its best case) and in 32 (as most programs run).
- `gradcheck`: `torch.autograd.gradcheck` on PyTorch twins of the gradient bugs, in 64 bits.
- `overfit_batches`: Lightning's `Trainer(overfit_batches=1)` on twins. It gives no verdict: a person looks whether the
  loss of the one batch goes to nought. Counted as found where it ends above a tenth of where it began.
- `skore`: the checks of its `EstimatorReport` for scikit-learn's network on the very data of the data bugs.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULT = HERE / "results" / "check_peers.json"
DATA = Path(tempfile.gettempdir()) / "gradwise-check-peers.npz"
# The data bugs, and the checks of skore that would name each: none where it has none for it.
OF_SKORE = {
    "labels_shifted_in_the_file": ("SKD002", "SKD009"),
    "inputs_shuffled_without_labels": ("SKD002", "SKD009"),
    "target_among_the_inputs": ("SKD011",),
    "class_among_the_inputs": ("SKD011",),
    "rows_of_test_in_train": (),
    "rounded_rows_of_test_in_train": (),
    "not_a_number_in_one_row": (),
    "no_shuffling_of_sorted_data": (),
    "inputs_not_scaled": ("SKD002", "SKD009"),
    "class_missing_in_train": ("SKD005",),
    "unscaled_test_part": (),
}
SOUND_FOR_SKORE = ("tanh_on_iris", "two_in_a_hundred", "parity", "random_labels")
Said = dict[str, Any]


def said(found: bool, words: str) -> Said:
    lines = [line.strip() for line in words.strip().splitlines() if line.strip()]
    return {"found": found, "said": " ".join(lines)[:300]}


# ---- jax.test_util.check_grads


def _grads_checked(subject: Any, wide: bool) -> Said:
    """check_grads of one loss; a derivative that has no forward mode is checked backwards alone."""
    import jax
    from jax.test_util import check_grads

    from gradwise.checking.subject import in_64_bits

    with jax.enable_x64(wide):
        widened = in_64_bits if wide else lambda tree: tree
        parameters, batch = widened(subject.parameters), widened(subject.batch)
        key = jax.random.key(0)
        value = jax.jit(lambda parameters: subject.value(parameters, batch, key))
        complaints = []
        for mode in ("fwd", "rev"):
            try:
                check_grads(value, (parameters,), order=1, modes=(mode,))
            except AssertionError as problem:
                complaints.append(f"{mode}: {problem}")
            except TypeError as problem:
                if "custom_vjp" not in str(problem):
                    raise
    return said(bool(complaints), complaints[0] if complaints else "nothing")


def _all_problems() -> tuple[list[Any], list[Any]]:
    sys.path.insert(0, str(HERE.parent / "tests" / "checking"))
    from bugs import BUGS
    from sound import SOUND

    return BUGS, SOUND


def run_check_grads() -> dict[str, Any]:
    from gradwise.checking.subject import Subject

    bugs, sounds = _all_problems()

    def of(one: Any) -> dict[str, Said]:
        given = one.make()
        more = {name: given[name] for name in ("apply", "evaluate") if name in given}
        subject = Subject.of(given["loss"], given["model"], given["batch"], **more)
        return {"64 bits": _grads_checked(subject, True), "32 bits": _grads_checked(subject, False)}

    gradients = [one for one in bugs if "check_grads" in one.peers]
    return {"bugs": {one.name: of(one) for one in gradients}, "sound": {one.name: of(one) for one in sounds}}


def keep_data() -> None:
    """Leaves the training and test parts of the data bugs where an interpreter without JAX can read them."""
    bugs, sounds = _all_problems()
    arrays = {}
    for one in (*bugs, *sounds):
        if one.name in OF_SKORE or one.name in SOUND_FOR_SKORE:
            given = one.make()
            for part in ("train", "test"):
                for side, leaf in zip("xy", given[part], strict=True):
                    arrays[f"{one.name}.{part}.{side}"] = np.asarray(leaf)
    np.savez(DATA, **arrays)


# ---- torch.autograd.gradcheck


def _torch_functions() -> dict[str, Any]:
    """PyTorch twins of the derivatives written by hand."""
    import torch

    def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
        class Twin(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *given: Any) -> Any:
                context.save_for_backward(*given)
                return forward(*given)

            @staticmethod
            def backward(context: Any, slope: Any) -> Any:
                return backward(slope, *context.saved_tensors)

        return Twin.apply

    def dense(weight: Any, bias: Any, x: Any) -> Any:
        return x @ weight + bias

    softplus, sigmoid = torch.nn.functional.softplus, torch.sigmoid
    return {
        "right": function(dense, lambda g, w, b, x: (x.T @ g, g.sum(0), g @ w.T)),
        "negated": function(dense, lambda g, w, b, x: (-x.T @ g, g.sum(0), g @ w.T)),
        "crossed": function(dense, lambda g, w, b, x: (x.T @ g, g.sum(0), g @ w)),
        "averaged": function(dense, lambda g, w, b, x: (x.T @ g, g.mean(0), g @ w.T)),
        "soft_clip": function(softplus, lambda g, x: -sigmoid(x) * g),
        "gated": function(lambda x: x * sigmoid(x), lambda g, x: sigmoid(x) * g),
        "half_error": function(lambda o, t: ((o - t) ** 2).mean(), lambda g, o, t: (g * (o - t) / o.numel(), None)),
    }


def _batch() -> tuple[Any, Any]:
    """Thirty-two scaled rows of iris."""
    import torch
    from sklearn.datasets import load_iris

    inputs, labels = load_iris(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(labels))[:32]
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    return torch.tensor(inputs[rows]), torch.tensor(labels[rows])


def run_gradcheck() -> dict[str, Any]:
    import torch

    functional = torch.nn.functional
    inputs, labels = _batch()
    torch.manual_seed(0)
    shapes = ((4, 10), (10,), (10, 10), (10,), (10, 3), (3,))
    weights = [torch.randn(shape, dtype=torch.float64) / 3 for shape in shapes]
    for weight in weights:
        weight.requires_grad_()
    own = _torch_functions()

    def plain(weight: Any, bias: Any, x: Any) -> Any:
        return x @ weight + bias

    def net(middle: Callable[..., Any] = plain, bend: Callable[..., Any] = torch.tanh) -> Callable[..., Any]:
        def outputs(*weights: Any) -> Any:
            hidden = bend(plain(weights[0], weights[1], inputs))
            hidden = bend(middle(weights[2], weights[3], hidden))
            return plain(weights[4], weights[5], hidden)

        return outputs

    def entropy(outputs: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *weights: functional.cross_entropy(outputs(*weights), labels)

    def distances(*weights: Any) -> Any:
        codes = net()(*weights)
        apart = ((codes[:, None] - codes[None]) ** 2).sum(-1).sqrt()
        return ((1 - torch.eye(len(codes), dtype=apart.dtype)) * apart).mean()

    def guarded(*weights: Any) -> Any:
        hidden = torch.relu(plain(weights[0], weights[1], inputs))
        shares = hidden / (hidden.sum(1, keepdim=True) + 1e-3)
        return -torch.where(shares > 0, shares * shares.log(), 0.0).sum(1).mean()

    def halved(*weights: Any) -> Any:
        return own["half_error"](net()(*weights)[:, 0], labels.double())

    twins = {
        "wrong_sign_in_a_custom_jvp": entropy(net(bend=own["soft_clip"])),
        "wrong_sign_in_a_custom_vjp": entropy(net(own["negated"])),
        "transposed_weights_backwards": entropy(net(own["crossed"])),
        "bias_gradient_averaged": entropy(net(own["averaged"])),
        "half_of_the_gradient_lost": halved,
        "forgotten_term_in_a_derivative": entropy(net(bend=own["gated"])),
        "detached_encoder": entropy(net(bend=lambda x: torch.tanh(x).detach())),
        "rounding_in_the_forward_pass": entropy(net(bend=lambda x: torch.round(4 * torch.tanh(x)) / 4)),
        "root_of_nought": distances,
        "logarithm_behind_where": guarded,
        "error_rate_as_the_loss": lambda *weights: (
            (net()(*weights).argmax(1) != labels).double().mean() + 0 * sum(weight.sum() for weight in weights)
        ),
    }
    sounds = {
        "right_derivative_by_hand": entropy(net(own["right"])),
        "tanh_on_iris": entropy(net()),
        "straight_through_rounding": entropy(net(bend=lambda x: x + (torch.round(4 * x) / 4 - x).detach())),
    }

    def judged(loss: Callable[..., Any]) -> Said:
        try:
            torch.autograd.gradcheck(loss, weights)
        except RuntimeError as problem:  # GradcheckError, and what autograd itself refuses
            return said(True, str(problem))
        return said(False, "nothing")

    parts = {"bugs": twins, "sound": sounds}
    return {name: {one: judged(loss) for one, loss in some.items()} for name, some in parts.items()}


# ---- lightning.Trainer(overfit_batches=1)


def _overfitted(make: Callable[[], Any], loss: Callable[..., Any], optimiser: Callable[..., Any], labels: Any) -> Said:
    import lightning
    import torch

    torch.manual_seed(0)
    inputs, right = _batch()
    data = torch.utils.data.TensorDataset(inputs.float(), right if labels is None else labels)
    losses: list[float] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            lightning.LightningModule.__init__(self)
            self.net = make()

        def training_step(self, batch: Any, number: int) -> Any:
            value = loss(self.net, *batch)
            losses.append(float(value.detach()))
            return value

        def configure_optimizers(self) -> Any:
            return optimiser(self.net)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(overfit_batches=1, max_epochs=200, enable_model_summary=False, **quiet)
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=32))
    ended = losses[-1]
    return said(not abs(ended) < 0.1 * abs(losses[0]), f"the loss goes from {losses[0]:.3g} to {ended:.3g}")


def run_overfit_batches() -> dict[str, Any]:
    import torch

    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)  # the networks are tiny
    nn, functional = torch.nn, torch.nn.functional
    _, labels = _batch()
    own = _torch_functions()

    def net(bend: Callable[[], Any] = nn.Tanh, outputs: int = 3) -> Callable[[], Any]:
        return lambda: nn.Sequential(nn.Linear(4, 12), bend(), nn.Linear(12, outputs))

    def changed(make: Callable[[], Any], change: Callable[[Any], None]) -> Callable[[], Any]:
        def made() -> Any:
            model = make()
            with torch.no_grad():
                change(model)
            return model

        return made

    class Calls(nn.Module):
        """A function as a layer."""

        def __init__(self, function: Callable[..., Any]) -> None:
            nn.Module.__init__(self)
            self.function = function

        def forward(self, x: Any) -> Any:
            return self.function(x)

    def entropy(model: Any, x: Any, y: Any) -> Any:
        return functional.cross_entropy(model(x), y)

    def adam(model: Any) -> Any:
        return torch.optim.Adam(model.parameters(), 1e-2)

    def sgd(rate: float) -> Callable[[Any], Any]:
        return lambda model: torch.optim.SGD(model.parameters(), rate)

    def zeroed(model: Any) -> None:
        for weight in model.parameters():
            weight.zero_()

    def equal(model: Any) -> None:
        for weight in model.parameters():
            weight.fill_(0.1 if weight.ndim == 2 else 0.0)

    def deep() -> Any:
        hidden = [layer for _ in range(4) for layer in (nn.Linear(10, 10), nn.ReLU())]
        return nn.Sequential(nn.Linear(4, 10), nn.ReLU(), *hidden, nn.Linear(10, 3))

    shuffled = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    numbers = labels.float() - 1
    twice = lambda m, x, y: functional.cross_entropy(m(x).softmax(1), y)  # noqa: E731
    crossed = lambda m, x, y: ((m(x) - y) ** 2).mean()  # noqa: E731
    twins: dict[str, tuple[Any, ...]] = {
        "wrong_sign_in_a_custom_jvp": (net(lambda: Calls(own["soft_clip"])), entropy, adam, None),
        "detached_encoder": (net(lambda: Calls(lambda x: torch.tanh(x).detach())), entropy, adam, None),
        "frozen_layer": (net(), entropy, lambda m: torch.optim.Adam(m[2].parameters(), 1e-2), None),
        "dead_rectifiers": (changed(net(nn.ReLU), lambda m: m[0].bias.sub_(20)), entropy, adam, None),
        "dead_layer_in_a_scanned_stack": (changed(deep, lambda m: m[6].bias.sub_(20)), entropy, adam, None),
        "zero_initial_weights": (changed(net(), zeroed), entropy, adam, None),
        "equal_initial_weights": (changed(net(), equal), entropy, adam, None),
        "rate_a_thousand_times_too_large": (net(), entropy, sgd(200.0), None),
        "rate_a_thousand_times_too_small": (net(), entropy, sgd(1e-4), None),
        "inputs_shuffled_without_labels": (net(), entropy, adam, shuffled),
        "softmax_twice": (net(), twice, adam, None),
        "column_against_row": (net(outputs=1), crossed, adam, numbers),
        "inputs_ignored": (net(), lambda m, x, y: functional.cross_entropy(m(0 * x), y), adam, None),
        "likelihood_without_its_minus": (net(), lambda m, x, y: -entropy(m, x, y), adam, None),
    }
    sounds = {"tanh_on_iris": (net(), entropy, adam, None)}
    parts = {"bugs": twins, "sound": sounds}
    return {name: {one: _overfitted(*given) for one, given in some.items()} for name, some in parts.items()}


# ---- skore


def _reported(name: str, codes: tuple[str, ...], data: Any) -> Said:
    """What the report of scikit-learn's network on this data says; found where a check that would name it spoke."""
    import skore
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    (x, y), (other, there) = ((data[f"{name}.{part}.x"], data[f"{name}.{part}.y"]) for part in ("train", "test"))
    kind = MLPClassifier if np.issubdtype(y.dtype, np.integer) else MLPRegressor
    network = kind(
        hidden_layer_sizes=(16,), max_iter=300, random_state=0, shuffle=name != "no_shuffling_of_sorted_data"
    )
    try:
        report = skore.EstimatorReport(network, X_train=x, y_train=y, X_test=other, y_test=there)
        table = report.checks.summarize().frame()
    except ValueError as problem:
        # A refusal of NaN is an answer; anything else is a failure of the tool on this data, not a verdict.
        answer = said("NaN" in str(problem), f"{type(problem).__name__}: {problem}")
        return answer if answer["found"] else {**answer, "failed": True}
    spoke = table[table["section"].isin(("issue", "tip"))]
    lines = [f"{row['code']} {row['title']}: {row['explanation']}" for _, row in spoke.iterrows()]
    # SKD009 is a tip when the network is as good as the baseline, and an issue when it is worse.
    named = [row["code"] for _, row in spoke.iterrows() if row["section"] == "issue" or row["code"] == "SKD011"]
    words = "; ".join(line[:90] for line in lines if line.split()[0] in named) or "nothing"
    return {**said(any(code in codes for code in named), words), "codes": named}


def run_skore() -> dict[str, Any]:
    warnings.simplefilter("ignore")  # the network's own: it has not converged
    if not DATA.exists():
        raise SystemExit(f"{DATA} is missing: run this script first where JAX is")
    data = np.load(DATA)
    return {
        "bugs": {name: _reported(name, codes, data) for name, codes in OF_SKORE.items()},
        "sound": {name: _reported(name, ("SKD002", "SKD009", "SKD011"), data) for name in SOUND_FOR_SKORE},
    }


PARTS: dict[str, tuple[tuple[str, ...], Callable[[], dict[str, Any]]]] = {
    "gradcheck": (("torch", "sklearn"), run_gradcheck),
    "check_grads": (("jax", "equinox", "optax"), run_check_grads),
    "overfit_batches": (("lightning", "torch", "sklearn"), run_overfit_batches),
    "skore": (("skore", "sklearn"), run_skore),
}


def show(name: str, part: dict[str, Any]) -> None:
    print(f"{name} ({part['version']}), {part['seconds']:.0f} s")
    for kind, words in (("bugs", ("missed", "found")), ("sound", ("quiet", "false alarm"))):
        for one, told in part[kind].items():
            best = told.get("64 bits", told)
            beside = f" | 32 bits: {words[told['32 bits']['found']]}" if "32 bits" in told else ""
            word = "failed" if best.get("failed") else words[best["found"]]
            print(f"  {one:42s} {word:12s} {best['said'][:90]}{beside}", flush=True)


def keep(name: str, part: dict[str, Any]) -> None:
    """Puts one part into the result, beside those of other runs."""
    before = json.loads(RESULT.read_text()) if RESULT.exists() else {"parts": {}}
    record = {
        "parts": {**before["parts"], name: part},
        "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "command": "python benchmarks/check_peers.py",
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=[])
    chosen = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    if importlib.util.find_spec("equinox") is not None:
        keep_data()
    for name, (packages, run) in PARTS.items():
        missing = [one for one in packages if importlib.util.find_spec(one) is None]
        if missing:
            print(f"{name}: left out, {' and '.join(missing)} cannot be imported here")
        elif not chosen.only or name in chosen.only:
            begun = time.monotonic()
            found = run()
            seconds = time.monotonic() - begun
            part = {"version": importlib.metadata.version(packages[0]), "seconds": seconds, **found}
            show(name, part)
            keep(name, part)


if __name__ == "__main__":
    main()
