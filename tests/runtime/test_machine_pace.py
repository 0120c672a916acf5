"""The pace of this machine: a number that a computer may have, measured once."""

from gradwise.runtime.machine_pace import accelerator_pace, core_pace


def test_a_core_and_a_device_have_a_pace() -> None:
    """Between a computer of the nineties and one that nobody has."""
    for pace in (core_pace(), accelerator_pace()):
        assert 1e8 < pace < 1e17
    assert core_pace() == core_pace(), "measured once"
