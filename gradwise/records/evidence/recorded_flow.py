"""What flowed through a network during training, as a monitor records it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FlowGroup:
    """One kind of numbers of one layer or parameter, look by look; a histogram holds shares, between its edges.

    `saturated` and `dead` are shares of a layer's activations; other kinds have none.
    """

    layer: str
    kind: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    rms: tuple[float, ...]
    norm: tuple[float, ...]
    histogram: tuple[tuple[float, ...], ...]
    edges: tuple[tuple[float, ...], ...]
    saturated: tuple[float, ...] = ()
    dead: tuple[float, ...] = ()


@dataclass(frozen=True)
class RecordedFlow:
    """The updates that were looked at; layers by kind in the order of the flow, and then parameters."""

    updates: tuple[int, ...] = ()
    groups: tuple[FlowGroup, ...] = ()
