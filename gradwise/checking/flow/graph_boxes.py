"""A drawing of a program: its equations grouped into a few boxes, with the edges between them.

    boxes, edges = boxes_of(sites, stages, counting, {"layers.0.weight": 35})
    boxes[0].name, boxes[0].kind, edges[0]                     "dot_general", "internal", (0, 1)

A *box* is a product, a loop, or a run of elementwise equations, all of one stage; at most three a stage. The parameters
of a stage are one box more, and each part of the batch is one.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...records.evidence.check_evidence import Box
from ...tracing.program import BENT, Site
from .graph_stages import AROUND, in_order, stage_kind
from .program_cost import MOVES, WHOLE, Counting

MOST_IN_STAGE = 3


def _title(sites: Sequence[Site], counting: Counting) -> str:
    """The names of what a box computes, in order: of many those that bend, then those that cost most."""
    costs: dict[str, tuple[bool, float]] = {}
    for site in sites:
        if site.primitive not in MOVES:
            _, before = costs.get(site.title, (False, 0.0))
            bends = site.primitive in BENT[:5] or bool(site.name)
            costs[site.title] = (bends, before + counting.costs[site.number][0])
    kept = sorted(costs, key=lambda name: costs[name], reverse=True)[:3]
    named = [name for name in costs if name in kept] or ["rearrange"]
    return ", ".join(named) + (", …" if len(costs) > len(named) else "")


def _runs(sites: Sequence[Site], stages: Sequence[str]) -> list[list[Site]]:
    """The sites of each box: products and loops alone, other neighbours of a stage together."""
    runs: list[list[Site]] = []
    for stage in in_order(sites, stages):
        mine: list[list[Site]] = []
        for site in (s for s in sites if stages[s.number] == stage):
            alone = site.primitive in WHOLE
            if mine and not alone and mine[-1][0].primitive not in WHOLE:
                mine[-1].append(site)
            elif mine and not alone and site.primitive in MOVES:
                mine[-1].append(site)  # a turned product is still the product
            else:
                mine.append([site])
        # What only rearranges before a product goes with it.
        joined: list[list[Site]] = []
        for run in mine:
            if joined and all(s.primitive in MOVES for s in joined[-1]):
                joined[-1] = [*joined[-1], *run]
            else:
                joined.append(run)
        if len(joined) > MOST_IN_STAGE:
            joined = [*joined[: MOST_IN_STAGE - 1], [s for run in joined[MOST_IN_STAGE - 1 :] for s in run]]
        runs += joined
    return runs


def _first_readers(sites: Sequence[Site], counting: Counting, home: dict[int, int]) -> dict[str, set[int]]:
    """For each parameter and part of the batch the boxes that read it."""
    found: dict[str, set[int]] = {}
    for site in sites:
        for name in site.parameters:
            found.setdefault(f"parameter:{name}", set()).add(home[site.number])
        for name in counting.batch[site.number]:
            found.setdefault(f"batch:{name}", set()).add(home[site.number])
    return found


def boxes_of(
    sites: Sequence[Site], stages: list[str], counting: Counting, sizes: dict[str, int]
) -> tuple[list[Box], list[tuple[int, int]]]:
    """The boxes of the loss with its inputs and parameters, and the edges between them."""
    runs = _runs(sites, stages)
    layers = [stage for stage in dict.fromkeys(stages) if stage not in AROUND]
    boxes: list[Box] = []
    home: dict[int, int] = {}
    for run in runs:
        stage, numbers = stages[run[0].number], [site.number for site in run]
        home |= dict.fromkeys(numbers, len(boxes))
        heavy = max(run, key=lambda site: counting.costs[site.number][0])
        final = bool(layers) and stage == layers[-1] and run is [r for r in runs if stages[r[0].number] == stage][-1]
        boxes.append(
            Box(
                _title([s for s in run if s.primitive in WHOLE] or run, counting),
                stage_kind(stage, final),
                stage,
                max(run, key=lambda site: ("batch" in site.depends, site.number)).shape,
                sum(counting.costs[n][0] for n in numbers),
                sum(counting.moved[n] for n in numbers),
                len(run),
                heavy.line,
            )
        )
    edges = {(home[read], home[site.number]) for site in sites for read in site.reads}
    for name, first in _first_readers(sites, counting, home).items():
        kind, _, rest = name.partition(":")
        if kind == "parameter":
            stage = boxes[min(first)].stage
            known = next((i for i, box in enumerate(boxes) if box.kind == kind and box.stage == stage), None)
            if known is None:
                known = len(boxes)
                boxes.append(Box("", kind, stage))
            box = boxes[known]
            boxes[known] = replace(box, sites=box.sites + 1, shape=(sum(box.shape) + sizes.get(rest, 0),))
        else:
            known = len(boxes)
            boxes.append(Box({"0": "inputs", "1": "targets"}.get(rest, rest), "input", "inputs"))
        edges |= {(known, target) for target in first}
    return boxes, sorted(edge for edge in edges if edge[0] != edge[1])
