"""The table of public names against what the modules define."""

import importlib
import inspect
import pkgutil

import equinox as eqx
import pytest

import gradwise
from gradwise.runtime.public_names import HOMES, lazy_names, load_public
from gradwise.specs.knobs import Spec

# Values inside compiled programs, and rows of a caller: no file ever holds them.
NEVER_WRITTEN = {"Decoding", "Flow", "Member", "Row", "Summary", "Terms", "Values"}


def _ours() -> list[type]:
    """Every public Equinox module class that gradwise defines."""
    found = []
    for module in pkgutil.walk_packages(gradwise.__path__, "gradwise."):
        if module.name != "gradwise.__main__":
            for thing in vars(importlib.import_module(module.name)).values():
                own = inspect.isclass(thing) and thing.__module__ == module.name and not thing.__name__.startswith("_")
                found += [thing] if own and issubclass(thing, eqx.Module) else []
    return found


def test_every_part_has_a_public_name() -> None:
    ours = _ours()
    assert len(ours) > 200
    assert {kind.__name__ for kind in ours if kind.__name__ not in HOMES} == NEVER_WRITTEN
    assert [kind for kind in ours if issubclass(kind, Spec) and kind.__name__ in NEVER_WRITTEN] == []
    assert [kind for kind in ours if kind.__name__ in HOMES and HOMES[kind.__name__] != kind.__module__] == []


@pytest.mark.parametrize("name", sorted(HOMES))
def test_every_public_name_is_defined_where_the_table_says(name: str) -> None:
    found = load_public(name)
    assert found.__module__ == HOMES[name]
    assert getattr(gradwise, name) is found


def test_a_package_gives_its_own_names() -> None:
    assert gradwise.optimisers.Sgd is gradwise.Sgd
    assert "Sgd" in dir(gradwise.optimisers)
    assert "Mlp" not in dir(gradwise.optimisers)
    assert inspect.ismodule(gradwise.journeys.fit)  # the function of this name is `gradwise.fit`
    with pytest.raises(AttributeError, match=r"module 'gradwise\.optimisers' has no attribute 'Mlp'"):
        _ = gradwise.optimisers.Mlp


def test_what_nobody_defines_has_no_names() -> None:
    names, find, listed = lazy_names("gradwise.nothing")
    assert names == listed() == []
    with pytest.raises(AttributeError, match="no attribute 'Sgd'"):
        find("Sgd")
