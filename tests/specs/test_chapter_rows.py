"""Every row that a knob names has words for the report."""

import importlib
import pkgutil

import gradwise
from gradwise.specs.chapter_rows import ROWS
from gradwise.specs.knobs import Spec, declarations

PARTS = ("data", "models", "criteria", "optimisers", "training")


def _specs(kind: type) -> list[type]:
    found = [kind]
    for child in kind.__subclasses__():
        found += _specs(child)
    return found


def test_every_declared_knob_names_a_row_with_words() -> None:
    for package in PARTS:
        for module in pkgutil.walk_packages(
            importlib.import_module(f"gradwise.{package}").__path__, f"gradwise.{package}."
        ):
            importlib.import_module(module.name)
    ours = [spec for spec in _specs(Spec) if spec.__module__.startswith(gradwise.__name__)]
    rows = {f"{spec.__qualname__}.{name}": declared.row for spec in ours for name, declared in declarations(spec)}
    assert len(rows) > 30
    assert {name: row for name, row in rows.items() if row not in ROWS} == {}


def test_every_declared_knob_says_what_it_is() -> None:
    ours = [spec for spec in _specs(Spec) if spec.__module__.startswith(gradwise.__name__)]
    silent = [f"{spec.__qualname__}.{n}" for spec in ours for n, declared in declarations(spec) if not declared.about]
    assert silent == []


def test_words_are_a_few() -> None:
    assert all(words and len(words) < 60 and "\n" not in words for words in ROWS.values())
