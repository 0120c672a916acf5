"""How well classes or labels are told apart at every threshold: figures of the receiver operating characteristic (ROC)
and of precision against recall, each class against the rest."""

import math
from collections.abc import Iterator
from functools import partial

from ...records.evidence.fit_evidence import FitEvidence, ThresholdCurve
from .. import wording
from ..blocks import Figure, Table
from ..plots import threshold_plots

_HEIGHT = 330


def _table(curves: tuple[ThresholdCurve, ...], of: str, area: str, values: list[float]) -> Table:
    rows = tuple(
        (curve.name, wording.whole(curve.count), wording.in_metric(area, value))
        for curve, value in zip(curves, values, strict=True)
    )
    return Table("Numbers", (of, "examples", wording.metric_name(area)), rows, (1, 2))


def _lowest(curves: tuple[ThresholdCurve, ...], of: str, area: str, values: list[float], total: int) -> str:
    """Which class is told apart worst, and which classes are missing from the picture."""
    worst = min(range(len(curves)), key=values.__getitem__)
    name = wording.short(curves[worst].name, 40)
    said = f" Lowest for {of} {name}: {wording.in_metric(area, values[worst])}." if len(curves) > 1 else ""
    fewer = len(curves) < total
    return said + (
        f" Of {total:,} {of}{'es' if of == 'class' else 's'}, the {len(curves)} with the lowest AUC are shown."
        if fewer
        else ""
    )


def threshold_figures(evidence: FitEvidence, metrics: dict[str, float]) -> Iterator[Figure]:
    """The two figures, where a class was there and the others too; `metrics` are those of the test set."""
    curves = evidence.thresholds
    if not curves:
        return
    of = "label" if evidence.labels else "class"
    classes = evidence.classes.classes
    total = len(evidence.labels) or len(classes)
    shown = curves
    if len(classes) == 2 == len(curves):  # the curve of the first is that of the second, seen in a mirror
        shown = curves[1:]
    mean = metrics.get("auc", math.nan)
    areas = [curve.auc for curve in shown]
    whose = f"Of {of} {wording.short(shown[0].name, 40)}" if len(shown) == 1 else f"Of each {of} against the rest"
    said = f"{whose}, at every threshold: the share found, and the share of all others that is taken for it. "
    said += (
        f"AUC {wording.in_metric('auc', mean)}{' on average' if len(shown) > 1 else ''}; on the dotted line, guessing."
    )
    said += _lowest(shown, of, "auc", areas, total if len(shown) > 1 else 1)
    draw, table = partial(threshold_plots.draw_roc, shown), _table(shown, of, "auc", areas)
    yield Figure("roc", "ROC curves" if len(shown) > 1 else "ROC curve", said, draw, table, height=_HEIGHT)
    precisions = [curve.average_precision for curve in curves]
    mean = metrics.get("average_precision", math.nan)
    said = f"Of each {of}, at every threshold: the share of it that is found (recall), and of those taken for it the "
    said += (
        f"share that is right (precision). Average precision {wording.in_metric('average_precision', mean)} on average."
    )
    said += _lowest(curves, of, "average_precision", precisions, total)
    draw = partial(threshold_plots.draw_precision_recall, curves)
    table = _table(curves, of, "average_precision", precisions)
    yield Figure("precision_recall", "Precision and recall", said, draw, table, height=_HEIGHT)
