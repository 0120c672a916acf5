"""Links (softmax, logistic), clips and penalties in a traced program, with their lines.

    links_twice(trace(loss, parameters, batch, key))     a softmax or logistic whose result goes into another
    end_of(trace(outputs, ...), shape)                   the non-linearity that the outputs come out of
    penalties_of(program)                                scalars of the parameters alone that are added to the loss

They are recognised by what they compute rather than by name: a softmax is an exponential divided by its own sum,
whichever library it is from.
"""

import math

from ...tracing.program import OWN_DERIVATIVE, Program, Site, readers_of

_SAME = ("reshape", "broadcast_in_dim", "squeeze", "convert_element_type", "transpose", "copy", "slice", "expand_dims")
# What a stable softmax or cross-entropy does to its argument before the exponential.
_BEFORE = (*_SAME, "sub", "neg", "abs", "max", "stop_gradient", "reduce_max", "select_n", "is_finite", "gt", "lt", "ge")
_SCALED = ("mul", "add", "sub", "div", "neg")
_SOFT = ("softmax", "_softmax")
_AGAIN = ("softmax", "_softmax", "logaddexp", "softplus", "log_sigmoid", "log_softmax")
HARD = ("relu", "relu6", "hard_tanh", "hard_sigmoid")
STEPS = ("max", "min", "clamp", "sign", "round", "floor", "ceil", "select_n")
_SOFT_PLUS = ("softplus", "logaddexp", "log_sigmoid")
BOUNDS = {
    "relu": (0.0, math.inf),
    "relu6": (0.0, 6.0),
    "hard_tanh": (-1.0, 1.0),
    "logistic": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "exp": (0.0, math.inf),
    "softplus": (0.0, math.inf),
}


class _Graph:
    """The sites of a program with who reads them."""

    def __init__(self, program: Program):
        self.sites = program.sites
        self.readers = readers_of(self.sites)

    def moving(self, site: Site) -> list[Site]:
        """The sites it reads that parameters go into."""
        return [self.sites[read] for read in site.reads if "parameters" in self.sites[read].depends]

    def origin(self, site: Site) -> Site:
        """Back through what only turns or spreads a value."""
        while site.primitive in _SAME and len(self.moving(site)) == 1:
            site = self.moving(site)[0]
        return site

    def after(self, start: int) -> set[int]:
        """Everything that follows from a site."""
        reached, ahead = set(), [start]
        while ahead:
            for reader in self.readers[ahead.pop()]:
                if reader not in reached:
                    reached.add(reader)
                    ahead.append(reader)
        return reached

    def is_link(self, site: Site) -> str:
        """ "softmax" or "logistic" where a site makes probabilities."""
        if site.primitive == "logistic":
            return "logistic"
        if site.name in _SOFT:
            return "softmax"
        if site.primitive != "div":
            return ""
        reads = [self.origin(one) for one in self.moving(site)]
        tops = [one for one in reads if one.primitive == "exp"]
        sums = [one for one in reads if one.primitive == "reduce_sum"]
        return "softmax" if tops and sums and tops[0].number in sums[0].reads else ""

    def bends_again(self, site: Site) -> str:
        """The name of a link that a site begins."""
        if site.primitive == "logistic":
            return "logistic"
        if site.primitive in OWN_DERIVATIVE:
            return site.name if site.name in _AGAIN else ""
        if site.primitive != "exp":
            return ""
        next_ = [self.sites[reader].primitive for reader in self.readers[site.number]]
        return "softmax" if "reduce_sum" in next_ else "softplus" if {"log1p", "add"} & set(next_) else ""


def links_twice(program: Program) -> tuple[Site, Site, str, str] | None:
    """A link whose probabilities go into another, nothing but their differences in between."""
    graph = _Graph(program)
    for site in graph.sites:
        first = graph.is_link(site) if site.is_activation else ""
        if not first:
            continue
        same = {site.number}
        for later in graph.sites[site.number + 1 :]:
            reads = {one.number for one in graph.moving(later)}
            if not reads or not reads <= same or later.parameters:
                continue
            second = graph.bends_again(later)
            # On its way to the loss no parameter comes in again: else it is a hidden layer.
            if second and not any(graph.sites[number].parameters for number in graph.after(later.number)):
                return site, later, first, second
            if later.primitive in _BEFORE:
                same.add(later.number)
    return None


def end_of(program: Program, shape: tuple[int, ...]) -> tuple[Site, bool] | None:
    """The non-linearity that the outputs come out of, if they do, and whether they are scaled or moved after it."""
    graph = _Graph(program)
    ends = [one for one in graph.sites if one.is_activation and one.shape == shape and not graph.readers[one.number]]
    site, scaled = ends[-1] if ends else None, False
    while site is not None:
        if site.name in (*HARD, *_SOFT_PLUS) or site.primitive in (*STEPS, *BOUNDS) or graph.is_link(site):
            return site, scaled
        reads = graph.moving(site)
        moved = site.primitive in _SCALED and len(site.reads) == 1
        passes = (site.primitive in _SAME or moved) and len(reads) == 1 and not site.parameters
        scaled = scaled or moved
        site = reads[0] if passes else None
    return None


def bounds_of(site: Site) -> tuple[float, float]:
    """The range of a non-linearity; infinite if unknown."""
    if site.name in BOUNDS or site.primitive in BOUNDS:
        return BOUNDS.get(site.name, BOUNDS.get(site.primitive, (-math.inf, math.inf)))
    return (0.0, 1.0) if site.primitive == "div" or site.name in _SOFT else (-math.inf, math.inf)


def penalties_of(program: Program) -> list[Site]:
    """Scalars that depend on parameters alone (apart from a factor of the batch) and are added to the loss."""
    graph = _Graph(program)
    alone: set[int] = set()
    for site in graph.sites:
        reads = graph.moving(site)
        scaled = site.primitive in {"mul", "div"} and site.shape == () and len(reads) == 1 and reads[0].number in alone
        if site.depends == {"parameters"} or (scaled and not site.parameters):
            alone.add(site.number)
    found_: list[Site] = []
    for site in graph.sites:
        joins = [graph.sites[reader] for reader in graph.readers[site.number] if reader not in alone]
        added = any(one.primitive in {"add", "add_any", "sub"} and one.shape == () for one in joins)
        if site.number in alone and site.shape == () and site.is_float and added:
            found_.append(site)
    return found_
