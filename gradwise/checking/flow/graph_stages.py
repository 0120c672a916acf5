"""Which stage of a network each equation belongs to, in the loss and in its gradient.

    sites = trace(loss, parameters, batch, key).sites
    stages = forward_stages(sites, names)                      one name a site: "inputs", "layers.0", ..., "loss"
    in_order(sites, stages); owners(sites, stages)             as the batch meets them; the stage of each parameter

A *stage* is a layer, the preparation of the inputs, the loss, or a penalty on the parameters alone. A site of the
gradient belongs to the layer whose parameter it reads, or else to the last layer that it leads to.
"""

from collections.abc import Iterable, Sequence

from ...tracing.program import Site, readers_of

AROUND = ("inputs", "loss", "penalty")  # the stages that are not layers


def stage_kind(stage: str, last: bool) -> str:
    """How a stage is drawn: "loss", "input", "output" for the last layer, or "internal"."""
    return (
        "loss" if stage in ("loss", "penalty") else "input" if stage == "inputs" else "output" if last else "internal"
    )


def live(sites: Sequence[Site], results: Iterable[int | None]) -> set[int]:
    """The sites on which some result depends."""
    needed = {number for number in results if number is not None}
    for site in reversed(sites):
        if site.number in needed:
            needed.update(site.reads)
    return needed


def forward_stages(sites: Sequence[Site], names: Sequence[str]) -> list[str]:
    """The stage of each site of the loss: its layer; "inputs" before, "loss" after the last; "penalty" aside."""
    mixing = [s.number for s in sites if s.parameters and "batch" in s.depends and s.is_float]
    last = max(mixing, default=-1)
    alias: dict[str, str] = {}  # a bias that is a parameter of its own, `b1`, belongs to the layer it is added to
    stages: list[str] = []
    for site in sites:
        both = {"parameters", "batch"} <= site.depends
        before = next((stages[n] for n in reversed(site.reads) if stages[n] not in ("", "inputs")), "")
        layer = site.layer or before
        if site.parameters and layer in names and before and site.primitive in ("add", "sub", "add_any"):
            alias[layer] = before
        stages.append("" if not both else "loss" if site.number > last else alias.get(layer, layer))
    readers = readers_of(sites)
    for site in reversed(sites):
        if not stages[site.number]:
            after = next((stages[n] for n in readers[site.number] if stages[n]), "")
            aside = "penalty" if after == "loss" and site.depends == {"parameters"} else after
            stages[site.number] = "inputs" if "batch" in site.depends and after not in ("", "loss") else aside
    return [stage or "loss" for stage in stages]


def in_order(sites: Sequence[Site], stages: Sequence[str]) -> list[str]:
    """The stages in the order in which the batch reaches them: weights may be prepared long before."""
    ordered = sorted(sites, key=lambda site: ("batch" not in site.depends, site.number))
    return list(dict.fromkeys(stages[site.number] for site in ordered))


def owners(sites: Sequence[Site], stages: Sequence[str]) -> dict[str, str]:
    """The stage that each parameter belongs to: the first that uses it, penalties aside."""
    owner: dict[str, str] = {}
    for aside in (False, True):
        for site in sites:
            if (stages[site.number] in AROUND) == aside:
                owner |= {name: stages[site.number] for name in site.parameters if name not in owner}
    return owner


def backward_stages(
    sites: Sequence[Site],
    first: int,
    results: Sequence[int | None],
    owner: dict[str, str],
    names: Sequence[str],
    order: Sequence[str],
) -> dict[int, str]:
    """The stage of each site after the first pass: of the parameter it reads, or of the last layer it leads to.

    What reads a value of the loss, or leads to such a site, is the loss's own.
    """
    forward = forward_stages(sites[: first + 1], names)
    reach = [-1] * len(sites)
    for name, number in zip(names, results, strict=True):
        if number is not None and name in owner:
            reach[number] = max(reach[number], order.index(owner[name]))
    readers = readers_of(sites)
    stages: dict[int, str] = {}
    for site in reversed(sites[first + 1 :]):
        for number in site.reads:
            reach[number] = max(reach[number], reach[site.number])
        direct = [owner[name] for name in site.parameters if name in owner]
        own = any(number <= first and forward[number] == "loss" for number in site.reads)
        led = any(stages[number] == "loss" for number in readers[site.number])
        reached = order[reach[site.number]] if reach[site.number] >= 0 else "loss"
        stages[site.number] = direct[-1] if direct else "loss" if own or led else reached
    return stages


def fewer(stages: list[str], most: int) -> list[str]:
    """Stage names shortened from the end until there are few enough; then neighbours are merged."""
    most += len(set(stages) & set(AROUND))
    while len(set(stages)) > most and any("." in stage for stage in stages):
        longest = max(stage.count(".") for stage in stages)
        stages = [stage.rpartition(".")[0] if stage.count(".") == longest else stage for stage in stages]
    if len(set(stages)) <= most:
        return stages
    order = list(dict.fromkeys(stage for stage in stages if stage not in AROUND))
    each = -(-len(order) // most)
    chunk = {name: order[i // each * each] for i, name in enumerate(order)}
    named = {chunk[name]: f"{chunk[name]} …" for name in order if chunk[name] != name}
    return [stage if stage in AROUND else named.get(chunk[stage], chunk[stage]) for stage in stages]
