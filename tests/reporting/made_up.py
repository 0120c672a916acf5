"""A made-up check in which every area left evidence, in the form of the areas' own `plain()`."""

from typing import Any

import numpy as np

from gradwise.records.check import Checked, Ran
from gradwise.records.finding import Finding

MACHINE = {"device": "cpu: cpu", "cores": 2, "jax": "0.10.0", "python": "3.11.7", "date": "2025-11-15 09:30 UTC"}


def gradient(wrong: bool = True) -> dict[str, Any]:
    epsilons = np.geomspace(1e-10, 1e-1, 10)
    slopes = [0.5, -0.25, 0.125]
    turned = [-slope for slope in slopes]
    right = {"size": 12, "looked_at": 3, "wrong": 0, "error": 2e-9, "analytic": slopes, "numeric": slopes}
    bad = {"size": 12, "looked_at": 3, "wrong": 3, "error": 2.0, "analytic": slopes, "numeric": turned}
    leaves = [{"name": "layers.0.weight", **right}, {"name": "layers.1.weight", **(bad if wrong else right)}]
    curve = {
        "epsilons": epsilons.tolist(),
        "forward": epsilons.tolist(),
        "central": (epsilons**2 + 1e-13 / epsilons).tolist(),
    }
    return {"loss": 2.3, "curve": curve, "leaves": leaves, "sites": [], "culprits": []}


def growth() -> dict[str, Any]:
    counts = np.array([31.0, 125.0, 500.0, 1000.0])
    valid = 0.06 + 1.9 * counts**-0.65
    return {
        "counts": counts.tolist(),
        "train": [[0.0, 0.01], [0.01, 0.02], [0.03, 0.02], [0.03, 0.04]],
        "valid": [[value - 0.01, value + 0.01] for value in valid],
        "noise": [0.01] * 4,
        "metric": "error_rate",
        "law": [0.06, 1.9, 0.65],
        "predicted": float(0.06 + 1.9 * 2000.0**-0.65),
        "gain": -0.01,
        "interval": [0.06, 0.09],
    }


def rates() -> dict[str, Any]:
    factors = [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0]
    ends = [2.3, 2.2, 2.0, 0.5, 9.0, None]
    return {
        "factors": factors,
        "losses": [[2.3, 2.3, 2.3, end] for end in ends],
        "names": ["layers.0.weight", "layers.0.bias", "layers.1.weight"],
        "ratios": [0.004, None, 0.5],
        "noise": {"value": 52.5, "low": 38.9, "high": 74.4, "size": 16, "groups": 8},
        "eigenvalue": 0.99,
        "limit": 2.02,
        "rate": None,
        "size": 32,
    }


def group(layer: str, kind: str, looks: int, scale: float = 1.0) -> dict[str, Any]:
    shares = np.full((looks, 4), 0.25)
    edges = np.linspace(-1, 1, 5)[None] * scale * np.arange(1, looks + 1)[:, None]
    told = {
        "mean": [0.1 * scale] * looks,
        "deviation": [scale] * looks,
        "rms": [scale] * looks,
        "norm": [scale] * looks,
    }
    flat = {"saturated": [0.0] * (looks - 1) + [0.3], "dead": [0.0] * looks} if kind == "activation" else {}
    return {"layer": layer, "kind": kind, **told, "histogram": shares.tolist(), "edges": edges.tolist(), **flat}


def flow() -> dict[str, Any]:
    """As of a check: two looks, before and after a rehearsal."""
    names, kinds = ("layers.0", "layers.1"), ("pre-activation", "activation", "activation gradient")
    layers = [
        {"name": name, "kind": "tanh", "gradient": [1e-3, size], "saturated": [0.0, share], "dead": [0.0, 0.0]}
        for name, size, share in zip(names, (2e-3, 8e-3), (0.25, None), strict=True)
    ]
    maps = [{"source": "layers.0", "target": "layers.1", "singular": np.linspace(0.1, 1.1, 11).tolist()}]
    return {"layers": layers, "maps": maps, "groups": [group(n, k, 2) for n in names for k in kinds]}


def data() -> dict[str, Any]:
    return {
        "task": "classes",
        "rows": {"train": 100, "test": 40},
        "columns": {"constant": [0, 7]},
        "counts": {"train": {"cat": 80, "dog": 20}, "test": {"cat": 30, "dog": 10}},
        "overlaps": [{"part": "test", "rows": 40, "exact": 12, "copied": 12, "expected": 0.0}],
        "shared": {"test": [3, 0.5]},
        "giving": {"column": 3, "score": 0.41, "exact": False},
        "signal": {"conflicting": 0.0, "denied": 0.02},
        "elsewhere": [{"part": "test", "area": 0.93}],
    }


def graph() -> dict[str, Any]:
    stages = [
        {"name": "layers.0", "kind": "internal", "operations": 1000.0, "backward_operations": 1100.0, "bytes": 4000.0},
        {"name": "layers.1", "kind": "output", "operations": 500.0, "backward_operations": 1000.0, "kept_bytes": 320.0},
        {"name": "loss", "kind": "loss", "operations": 50.0, "backward_operations": 40.0},
    ]
    boxes = [
        {"name": "inputs", "kind": "input", "stage": "inputs", "shape": []},
        *(
            {"name": "dot_general", "kind": s["kind"], "stage": s["name"], "shape": [8, 4], "sites": 2} | s
            for s in stages
        ),
    ]
    boxes = [box | {"name": "dot_general" if box["kind"] != "input" else "inputs"} for box in boxes]
    compiled = {
        "instructions": 60,
        "kernels": 9,
        "fused": 40,
        "operations": 3600.0,
        "temporary_bytes": 2048.0,
    }
    counts = {"loss": 30, "gradient": 50, "together": 60, "unused": 3, "repeated": 2}
    edges = {"edges": [[0, 1], [1, 2], [2, 3]], "back_edges": [[2, 1], [1, 0]]}
    total = {"operations": 1550.0, "backward_operations": 2140.0}
    return {"stages": stages, "boxes": boxes, **edges, **total, "counts": counts, "compiled": compiled}


def evidence() -> dict[str, Any]:
    ages = list(range(1000, 11000, 1000))
    history = {
        "age_examples": ages,
        "train_score": [0.5 / a * 1000 for a in ages],
        "valid_score": [0.6 / a * 1000 for a in ages],
    }
    return {
        "gradient": gradient(),
        "overfit": {
            "learned": True,
            "examples": 8,
            "curves": [[2.3, 0.5, 1e-4], [2.2, 0.9, 2e-3]],
            "starts": [2.3, 2.2],
            "ends": [1e-4, 2e-3],
        },
        "start": {"loss": 2.4, "constant": 2.3, "losses": np.linspace(2.4, 1.5, 100).tolist()},
        "growth": growth(),
        "rates": rates(),
        "flow": flow(),
        "data": data(),
        "choices": {"kind": "softmax", "penalty": 0.0025, "rest": 2.31},
        "graph": graph(),
        "training": {"numbers": {"metric": "error_rate"}, "history": history},
        "verdict": {
            "kind": "broken",
            "metric": "error_rate",
            "train": 0.01,
            "valid": 0.06,
            "test": 0.05,
            "chance": 0.9,
        },
    }


def checked() -> Checked:
    findings = (
        Finding("note", "84 % of the operations are in `layers.0`.", "B5", "make it smaller.", "GW902", "layers.0"),
        Finding(
            "error",
            "the gradient has the wrong sign.",
            "F1",
            "mend the derivative of `odd`.",
            "GW101",
            "layers.1.weight, model.py:12 in odd",
            {"ratio": -1.0},
        ),
        Finding("warning", "12 of 40 test rows stand in the training set.", "E2", "drop them.", "GW201", "test"),
    )
    ran = (Ran("gradient", "found", 3.1), Ran("padding", "not run", 0.0, "no mask"), Ran("graph", "passed", 0.4))
    return Checked(
        subject="loss",
        verdict="Something is broken: the gradient of layers.1.weight has the wrong sign, and nothing else can be "
        "judged before that is mended.",
        findings=findings,
        remedies=("mend the derivative of `odd`", "check again"),
        ran=ran,
        evidence=evidence(),
        seconds=12.5,
        seed=3,
        version="0.1.0",
        machine=MACHINE,
    )
