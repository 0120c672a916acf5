"""A made-up check in which every area left evidence, as the areas leave it."""

import dataclasses
import math
from typing import Any

import numpy as np

from gradwise.records.check import Checked, Ran
from gradwise.records.evidence.check_evidence import (
    Box,
    CheckedEvidence,
    ChoicesEvidence,
    Compiled,
    CopiedRows,
    Counts,
    DataEvidence,
    FlowEvidence,
    GradientEvidence,
    GraphMeasured,
    GrowthEvidence,
    LayerFlow,
    LayerMap,
    NoiseScale,
    OverfitEvidence,
    ParameterGradient,
    RatesEvidence,
    Stage,
    StartEvidence,
    TrainingEvidence,
)
from gradwise.records.evidence.recorded_flow import FlowGroup
from gradwise.records.evidence.verdict import Judgement, RunNumbers
from gradwise.records.finding import Finding

MACHINE = {"device": "cpu: cpu", "cores": 2, "jax": "0.10.0", "python": "3.11.7", "date": "2025-11-15 09:30 UTC"}


def gradient(wrong: bool = True) -> GradientEvidence:
    epsilons = np.geomspace(1e-10, 1e-1, 10)
    central = epsilons**2 + 1e-13 / epsilons
    right = ParameterGradient("layers.0.weight", 2e-9, 3)
    bad = ParameterGradient("layers.1.weight", 2.0, 3, wrong=3, turned=True)
    second = bad if wrong else dataclasses.replace(right, name="layers.1.weight")
    return GradientEvidence(*(tuple(line.tolist()) for line in (epsilons, epsilons, central)), (right, second))


def growth() -> GrowthEvidence:
    counts = (31, 125, 500, 1000)
    return GrowthEvidence(
        counts=counts,
        train=(0.005, 0.015, 0.025, 0.035),
        valid=tuple(0.06 + 1.9 * count**-0.65 for count in counts),
        train_errors=(0.005,) * 4,
        valid_errors=(0.014,) * 4,
        metric="error_rate",
        law=(0.06, 1.9, 0.65),
        predicted=0.06 + 1.9 * 2000.0**-0.65,
        interval=(0.06, 0.09),
        gain=-0.01,
    )


def rates() -> RatesEvidence:
    return RatesEvidence(
        factors=(0.0, 0.1, 1.0, 10.0, 100.0, 1000.0),
        losses=(2.3, 2.2, 2.0, 0.5, 9.0, math.nan),
        names=("layers.0.weight", "layers.0.bias", "layers.1.weight"),
        ratios=(0.004, math.nan, 0.5),
        size=32,
        eigenvalue=0.99,
        limit=2.02,
        noise=NoiseScale(52.5, 38.9, 74.4, 16, 8),
    )


def group(layer: str, kind: str, looks: int, scale: float = 1.0) -> FlowGroup:
    edges = np.linspace(-1, 1, 5)[None] * scale * np.arange(1, looks + 1)[:, None]
    flat: dict[str, Any] = {}
    if kind == "activation":
        flat = {"saturated": (0.0,) * (looks - 1) + (0.3,), "dead": (0.0,) * looks}
    moments = ((0.1 * scale,) * looks, (scale,) * looks, (scale,) * looks, (scale,) * looks)
    return FlowGroup(layer, kind, *moments, ((0.25,) * 4,) * looks, tuple(map(tuple, edges.tolist())), **flat)


def flow() -> FlowEvidence:
    """As of a check: two looks, before and after a rehearsal."""
    names, kinds = ("layers.0", "layers.1"), ("pre-activation", "activation", "activation gradient")
    layers = (LayerFlow("layers.0", 0.25, 0.0, 2e-3), LayerFlow("layers.1", math.nan, 0.0, 8e-3))
    maps = (LayerMap("layers.0", "layers.1", 0.2, 0.6, 1.0),)
    return FlowEvidence(layers, maps, tuple(group(n, k, 2) for n in names for k in kinds))


def data() -> DataEvidence:
    return DataEvidence(
        counts={"train": {"cat": 80, "dog": 20}, "test": {"cat": 30, "dog": 10}},
        copied=(CopiedRows("test", 40, 12, 0.0),),
        shared_groups={"test": 3},
        constant=2,
        best_input=0.41,
        conflicting=0.0,
        denied=0.02,
        separable={"test": 0.93},
    )


def graph() -> GraphMeasured:
    stages = (
        Stage("layers.0", "internal", operations=1000.0, backward_operations=1100.0, bytes=4000.0, kept_bytes=math.nan),
        Stage("layers.1", "output", operations=500.0, backward_operations=1000.0, kept_bytes=320.0),
        Stage("loss", "loss", operations=50.0, backward_operations=40.0),
    )
    boxes = (
        Box("inputs", "input", "inputs"),
        *(Box("dot_general", one.kind, one.name, (8, 4), one.operations, sites=2) for one in stages),
    )
    compiled = Compiled(instructions=60, kernels=9, fused=40, operations=3600.0, temporary_bytes=2048.0)
    edges, back = ((0, 1), (1, 2), (2, 3)), ((2, 1), (1, 0))
    return GraphMeasured(stages, boxes, edges, back, Counts(30, 50, 60, 3, 2), compiled)


def evidence() -> CheckedEvidence:
    ages = tuple(range(1000, 11000, 1000))
    numbers = RunNumbers(train=0.01, test=0.05, valid=0.06, chance=0.9)
    scores = (tuple(0.5 / age * 1000 for age in ages), tuple(0.6 / age * 1000 for age in ages))
    return CheckedEvidence(
        gradient=gradient(),
        overfit=OverfitEvidence(8, True, (2.3, 2.2), (1e-4, 2e-3), ((2.3, 0.5, 1e-4), (2.2, 0.9, 2e-3))),
        start=StartEvidence(tuple(np.linspace(2.4, 1.5, 100).tolist()), 2.3),
        growth=growth(),
        rates=rates(),
        flow=flow(),
        data=data(),
        choices=ChoicesEvidence("softmax", 0.0025, 2.31),
        graph=graph(),
        training=TrainingEvidence(numbers, ages, *scores, "stopped by patience"),
        verdict=Judgement("Something is broken.", "broken", numbers),
    )


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
