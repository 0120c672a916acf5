"""Trees: formulas of true and false, by a recursive network and by a recurrent one that reads the same formula.

    python benchmarks/trees.py [--seeds 3] [--rows 2000] [--depth 3] [--deepest 6] [--out trees.json]

A formula is T or F, the negation of one, or two joined by and (&), or (|), exclusive or (^); the target is its value.
Both networks learn from the same formulas, no deeper than `--depth`, and are measured on others, and on ones exactly as
deep as each depth up to `--deepest`. The recurrent network reads the symbols and brackets from left to right. Both have
the recipe of their kind of data and choose their best network on a fifth of the rows.

Then one pass over trees, forward and backward, in two orders: node after node, as `Recursive` does it, and level after
level, all nodes of a level at once in the room of the widest.
"""

import argparse
import json
import platform
import random
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import gradwise as gw
from gradwise.models.trees.recursive import Recursive, RecursiveNetwork
from gradwise.specs.dataset import InputLayout
from gradwise.specs.paths import trainable

HERE = Path(__file__).parent
LETTERS = "TF&|^!()"
Written = tuple[str, bool]


def formula(depth: int, draw: random.Random, whole: bool) -> Written:
    """A formula in brackets and its value; with `whole` one branch goes down to the last level."""
    if depth == 0 or (not whole and draw.random() < 0.3):
        value = draw.random() < 0.5
        return "T" if value else "F", value
    sign, deep_left = draw.choice("&|^^!"), draw.random() < 0.5
    one, first = formula(depth - 1, draw, whole and (deep_left or sign == "!"))
    if sign == "!":
        return f"(! {one})", not first
    two, second = formula(depth - 1, draw, whole and not deep_left)
    value = {"&": first and second, "|": first or second, "^": first != second}[sign]
    return f"({sign} {one} {two})", value


def formulas(count: int, depths: range, seed: int) -> list[Written]:
    """Different formulas, their depths drawn evenly."""
    draw, found = random.Random(seed), dict[str, bool]()
    while len(found) < count:
        text, value = formula(draw.choice(depths), draw, whole=True)
        found[text] = value
    return list(found.items())


def as_steps(written: list[Written]) -> gw.Sequences:
    """The symbols and brackets from left to right, each as one of 8 flags."""
    rows = np.eye(len(LETTERS), dtype=np.float32)
    return gw.Sequences.from_list([rows[[LETTERS.index(c) for c in text if c != " "]] for text, _ in written])


def as_trees(written: list[Written], symbols: tuple[str, ...] | None = None) -> gw.Trees:
    return gw.Trees.from_list([text for text, _ in written], symbols)


def measure(seed: int, rows: int, depth: int, deepest: int, epochs: float) -> list[dict[str, Any]]:
    """Errors of both networks at each depth, after one training each."""
    everything = formulas(rows + 1000, range(2, depth + 1), seed)
    train, apart = everything[:rows], everything[rows:]
    known = {text for text, _ in train}
    tests = {f"to {depth}": apart}
    for level in range(depth + 1, deepest + 1):
        several = formulas(1000, range(level, level + 1), 1000 + seed)
        tests[str(level)] = [one for one in several if one[0] not in known]
    found = []
    for name, inputs_of in (("recursive", as_trees), ("recurrent", as_steps)):
        values = np.array([int(value) for _, value in train])
        dataset = gw.Dataset(inputs_of(train), values, gw.Classes(np.arange(2)))
        recipe = gw.defaults.for_data(dataset, stopping=gw.Off(epochs=epochs), split=gw.HoldOut(valid=0.2, test=0.0))
        begun = time.monotonic()
        record = gw.train(recipe, dataset, key=gw.from_seed(seed))
        took = time.monotonic() - begun
        errors = {}
        for level, part in tests.items():
            told = np.argmax(np.asarray(record.predictor.predict(inputs_of(part))), axis=1)
            errors[level] = float(np.mean(told != np.array([int(value) for _, value in part])))
        found.append({"network": name, "seed": seed, "errors": errors, "seconds": took})
        print(json.dumps(found[-1]), flush=True)
    return found


def by_level(trees: gw.Trees) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The nodes of each tree in the order of their levels, where each level begins, and how many nodes it has."""
    plans, rows = [], np.full(trees.shape, np.nan, np.float32)
    for number in range(len(trees)):
        nodes, heights = trees[number].copy(), [0] * len(trees[number])
        for place, (left, right) in enumerate(nodes[:, :2].astype(int)):
            heights[place] = 1 + max([heights[child] for child in (left, right) if child >= 0], default=-1)
        order = np.argsort(heights, kind="stable")
        new = np.empty(len(nodes) + 1)
        new[order], new[-1] = np.arange(len(nodes)), -1
        nodes[:, :2] = new[nodes[:, :2].astype(int)]
        rows[number, : len(nodes)] = nodes[order]
        plans.append(np.bincount(heights))
    levels = max(map(len, plans))
    counts = np.stack([np.pad(plan, (0, levels - len(plan))) for plan in plans])
    return rows, np.cumsum(counts, axis=1) - counts, counts


def roots_by_levels(network: RecursiveNetwork, x: Any, starts: Any, counts: Any, widest: int) -> Any:
    """h of the root of one tree, a level at a time: `widest` nodes are worked on in each, of which `count` are kept."""
    size, shape = x.shape[0], network.bias.shape
    present = ~jnp.isnan(x[:, 0])
    x = jnp.where(present[:, None], x, -1.0)
    children = jnp.where(x[:, :2] >= 0, x[:, :2], size + widest).astype(jnp.int32)
    driven = jnp.pad(network.nodes(x), ((0, widest), (0, 0), (0, 0)))
    children = jnp.pad(children, ((0, widest), (0, 0)), constant_values=size + widest)
    both = jnp.stack([network.weights.left, network.weights.right])

    def visit(done: Any, plan: Any) -> Any:
        start, count = plan
        below = jax.lax.dynamic_slice_in_dim(children, start, widest)
        own = jax.lax.dynamic_slice_in_dim(driven, start, widest)
        states = done[below]
        held = jnp.einsum("kru,nku->nkr", both, states[:, :, 0]).reshape(widest, 2, *shape)
        has = jnp.sum(below < size + widest, axis=1).astype(x.dtype)
        state = jax.vmap(network.cell.join)(own, held, states, has)
        kept = jax.lax.dynamic_slice_in_dim(done, start, widest)
        mask = (jnp.arange(widest) < count)[:, None, None]
        return jax.lax.dynamic_update_slice_in_dim(done, jnp.where(mask, state, kept), start, 0), None

    begin = jnp.zeros((size + widest + 1, network.cell.vectors, shape[1]))
    done, _ = jax.lax.scan(visit, begin, (starts, counts))
    return done[jnp.sum(present) - 1, 0]


def orders(depth: int, batch: int = 64, repeats: int = 7) -> dict[str, Any]:
    """Milliseconds of a gradient over a batch of trees of this depth, in both orders."""
    trees = as_trees(formulas(batch, range(depth, depth + 1), 0))
    sorted_rows, starts, counts = by_level(trees)
    model = Recursive(dropout=0.0).for_inputs(InputLayout(0, 0, (len(trees.symbols),)))
    network = model.build(trees.shape[1:], 2, key=jr.key(0))
    parameters, rest = trainable(network)
    rows, plans = jnp.asarray(np.asarray(trees, np.float32)), (jnp.asarray(starts), jnp.asarray(counts))
    widest = int(counts.max())

    def nodes(p: Any) -> Any:
        one: Any = eqx.combine(p, rest)
        return jax.vmap(one.features)(rows)

    def levels(p: Any) -> Any:
        one: Any = eqx.combine(p, rest)
        return jax.vmap(lambda x, s, c: roots_by_levels(one, x, s, c, widest))(jnp.asarray(sorted_rows), *plans)

    np.testing.assert_allclose(jax.jit(nodes)(parameters), jax.jit(levels)(parameters), atol=1e-5)
    took = {}
    for name, run in (("nodes", nodes), ("levels", levels)):
        slope = jax.jit(jax.grad(lambda p, run=run: jnp.sum(run(p) ** 2)))
        jax.block_until_ready(slope(parameters))
        several = []
        for _ in range(repeats):
            begun = time.perf_counter()
            jax.block_until_ready(slope(parameters))
            several.append(time.perf_counter() - begun)
        took[name] = 1000 * min(several)
    return {"depth": depth, "nodes": trees.shape[1], "levels": counts.shape[1], "widest": widest, "ms": took}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--deepest", type=int, default=6)
    parser.add_argument("--epochs", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "trees.json")
    given = parser.parse_args()
    times = [orders(depth) for depth in (2, 4, 6)]
    print(json.dumps(times), flush=True)
    rows: list[dict[str, Any]] = []
    result = {
        "rows": rows,
        "orders": times,
        "trained": {"rows": given.rows, "depth": given.depth, "epochs": given.epochs},
        "machine": f"{platform.machine()}, {jax.devices()[0].platform}",
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "benchmarks/trees.py", *sys.argv[1:]]),
    }
    for seed in range(given.seeds):
        rows += measure(seed, given.rows, given.depth, given.deepest, given.epochs)
        given.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
