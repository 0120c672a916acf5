"""What a trained network is worth on each part of the data: every metric, and what the pictures need."""

import dataclasses
import math
from typing import Any

from ..evaluation.metrics import measure, metric_interval
from ..evaluation.prediction_evidence import gather_evidence
from ..specs.dataset import Dataset
from .predictor import Predictor, outputs_of

Measured = tuple[dict[str, dict[str, float]], dict[str, Any], tuple[float, float]]


def measure_parts(
    predictor: Predictor, scaled: dict[str, Any], parts: dict[str, Dataset | None], metric: str
) -> Measured:
    """Every metric of every part; of the test part also what the pictures need, and the interval.

    `scaled` holds the inputs of parts that were scaled already. Examples without a target are not judged.
    """
    metrics: dict[str, dict[str, float]] = {}
    evidence: dict[str, Any] = {}
    ends = (math.nan, math.nan)
    for name, part in parts.items():
        if part is None:
            metrics[name] = dict.fromkeys(metrics["train"], math.nan)
            continue
        inputs = scaled[name] if name in scaled else predictor.scaler.apply(part.inputs)
        outputs = outputs_of(predictor.network, inputs)
        predictions = predictor.from_outputs(outputs)
        known = part.labelled
        weights = None if part.weights is None else part.weights[known]
        metrics[name] = measure(part.task, predictions[known], part.targets[known], weights)
        if name == "test":
            raw = dataclasses.replace(predictor, temperature=1.0).from_outputs(outputs)
            evidence = gather_evidence(part.task, raw, predictions, part.targets, part.rows)
            if part.task.kind == "classes":
                evidence["temperature"] = predictor.temperature
            ends = metric_interval(metric, part.task, predictions, part.targets, part.weights)
    return metrics, evidence, ends
