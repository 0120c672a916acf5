"""What the numbers of the flow mean: a fault above its threshold is found at its layer, below it nothing is said."""

import dataclasses

import numpy as np
import pytest

from gradwise.checking.codes import CODES, page
from gradwise.checking.flow.signal_flow import FlowMeasured, JacobianSpectrum, LayerMeasured
from gradwise.checking.flow.signal_flow_findings import find_flow

SOUND = LayerMeasured(
    name="layers.0",
    kind="other",
    line="",
    units=50,
    rows=64,
    frozen=False,
    rms=(1.0, 1.0),
    gradient=(0.1, 0.1),
    saturated=(float("nan"), float("nan")),
    dead=(0.1, 0.1),
    copies=(0.0, 0.0),
)


def told(findings):
    return [(finding.code, finding.level, finding.where) for finding in findings]


def of(**changes):
    """What is said of a network of two layers, the lower one changed."""
    lower = dataclasses.replace(SOUND, above=(1,), **changes)
    return told(find_flow(FlowMeasured((lower, dataclasses.replace(SOUND, name="layers.1")))))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"dead": (0.0, 0.5)}, [("GW602", "warning", "layers.0")]),
        ({"dead": (0.0, 1.0)}, [("GW602", "warning", "layers.0")]),  # killed by training: the rate is the bug
        ({"dead": (0.96, 0.96)}, [("GW602", "error", "layers.0")]),
        ({"dead": (0.9, 0.2)}, []),  # repaired
        ({"dead": (1.0, 1.0), "rows": 4}, []),  # too few examples to tell
        ({"kind": "tanh", "saturated": (0.2, 0.6), "dead": (0.0, 0.0)}, [("GW601", "warning", "layers.0")]),
        ({"kind": "tanh", "saturated": (0.995, 1.0), "dead": (1.0, 1.0)}, [("GW601", "error", "layers.0")]),
        ({"copies": (1.0, 0.0)}, []),  # parted by training
        ({"copies": (0.1, 0.1)}, [("GW603", "warning", "layers.0")]),
        ({"copies": (1.0, 1.0), "dead": (1.0, 1.0)}, [("GW603", "error", "layers.0")]),  # one cause, one finding
        ({"copies": (1.0, 1.0), "frozen": True}, []),
        ({"gradient": (1e-6, 1e-5)}, [("GW604", "warning", "layers.0")]),
        ({"gradient": (1e-6, 1e-2)}, []),
        ({"gradient": (0.0, 0.0)}, []),  # detached, which is another check's
        ({"gradient": (1e5, 1e5)}, [("GW605", "warning", "layers.0")]),
        ({"rms": (1e-6, 1e-6)}, [("GW605", "warning", "layers.1")]),
    ],
)
def test_findings_follow_from_numbers(changes, expected) -> None:
    assert of(**changes) == expected


def test_steps_of_a_recurrent_layer_are_one_layer_to_what_is_dead_and_have_a_remedy_of_their_own() -> None:
    def steps(*dead: float, gradient: float = 0.1, copies: tuple[float, ...] = (0.0,) * 3):
        made = [
            dataclasses.replace(
                SOUND,
                name=f"keep[{i}]",
                step_of="model.py:7 in step",
                copies=(copies[i],) * 2,
                dead=(share, share),
                gradient=(gradient**i, gradient**i),
                above=tuple(range(i + 1, len(dead))),
            )
            for i, share in enumerate(dead)
        ]
        return find_flow(FlowMeasured(tuple(made)))

    assert not steps(1.0, 0.1, 0.0)  # padding comes first
    assert not steps(0.0, 0.0, 0.0, copies=(1.0, 0.0, 0.0))
    assert not steps(1.0, 0.1, 0.0, copies=(1.0, 0.0, 0.0))
    assert told(steps(0.0, 0.0, 0.0, copies=(1.0, 1.0, 1.0))) == [("GW603", "error", "keep[0]")]
    assert told(steps(1.0, 1.0, 1.0)) == [("GW602", "error", "keep[0]")]
    (vanishing,) = steps(0.0, 0.0, 0.0, gradient=1e3)
    assert (vanishing.code, vanishing.where) == ("GW604", "keep[0]")
    assert "orthogonal" in vanishing.next


def test_a_gate_that_is_shut_at_one_step_is_no_vanishing_gradient() -> None:
    step = dataclasses.replace(SOUND, name="cell[0]", step_of="model.py:7 in step", above=(2,))
    gate = dataclasses.replace(step, name="cell[0] (2)", gradient=(1e-7, 1e-7))
    top = dataclasses.replace(SOUND, name="top")
    assert not find_flow(FlowMeasured((step, gate, top)))
    assert told(find_flow(FlowMeasured((gate, dataclasses.replace(gate, name="cell[0] (3)"), top)))) == [
        ("GW604", "warning", "cell[0] (2)")
    ]


def test_a_change_of_width_is_no_stretch() -> None:
    def stretched(forwards: float, backwards: float, last: bool = False, singular: tuple[float, ...] = ()):
        return find_flow(
            FlowMeasured(stretches=(JacobianSpectrum("a", "b", forwards, backwards, np.array(singular), last),))
        )

    assert not stretched(1.0, 6.0)
    assert not stretched(0.1, 1.0)
    assert told(stretched(4.0, 5.0)) == [("GW606", "note", "b")]
    assert told(stretched(0.2, 0.1)) == [("GW606", "note", "b")]
    assert not stretched(0.2, 0.1, last=True)
    assert not stretched(0.2, 0.1, singular=(0.0, 0.0, 0.2))  # most of it goes elsewhere: a gate


@pytest.mark.parametrize("code", [code for code in CODES if code.startswith("GW6")])
def test_every_code_has_its_page(code: str) -> None:
    text = page(code)
    assert text.startswith(f"# {code}: {CODES[code].title}\n")
    assert text.rstrip().endswith(f"Chapter: row {CODES[code].row}.")
