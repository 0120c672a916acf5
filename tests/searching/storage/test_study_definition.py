"""The study file and the small language of priors: what is written is what is read."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gradwise.models.activations import Rectifier, Tanh
from gradwise.runtime.errors import RequestError
from gradwise.searching.storage.study_definition import (
    parse_prior,
    prior_text,
    read_store,
    read_study_file,
    write_study_file,
)
from gradwise.specs.priors import AbstractPrior, Choice, LogInteger, LogUniform, Uniform, ZeroOr

_number = st.floats(allow_nan=False, allow_infinity=False)
_positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
_value = st.recursive(
    st.integers() | _number | st.booleans() | st.text(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@st.composite
def priors(draw: Any) -> AbstractPrior:
    kind = draw(st.sampled_from(["uniform", "log", "integers", "choice", "weighted"]))
    if kind == "choice":
        return Choice(tuple(draw(st.lists(_value, min_size=1, max_size=4))))
    if kind == "weighted":
        pairs = draw(st.lists(st.tuples(_value, st.floats(0, 1e6)), min_size=1, max_size=4))
        assume(sum(weight for _, weight in pairs) > 0)
        return Choice(tuple(value for value, _ in pairs), tuple(weight for _, weight in pairs))
    numbers = {"uniform": _number, "log": _positive, "integers": st.integers(1, 10**9)}[kind]
    low, high = sorted(draw(st.tuples(numbers, numbers)))
    assume(low < high)
    return {"uniform": Uniform, "log": LogUniform, "integers": LogInteger}[kind](low, high)


@pytest.mark.slow
@given(priors(), st.none() | st.floats(0, 1, exclude_max=True))
@settings(max_examples=150, deadline=None)
def test_a_prior_comes_back_from_its_text(prior: AbstractPrior, zero: float | None) -> None:
    whole = prior if zero is None else ZeroOr(prior, zero)
    back = parse_prior(prior_text(whole))
    assert repr(back) == repr(whole)  # 1, 1.0 and True are told apart


@pytest.mark.parametrize(
    ("text", "prior"),
    [
        ("log(1e-4, 1e-1)", LogUniform(1e-4, 1e-1)),
        ("uniform(0, 0.5)", Uniform(0.0, 0.5)),
        (" Uniform ( -1 ,.5 ) ", Uniform(-1.0, 0.5)),
        ("integers(16, 1e3)", LogInteger(16, 1000)),
        ("choice(32, 64, 128)", Choice((32, 64, 128))),
        ("choice(Tanh, Rectifier)", Choice(("Tanh", "Rectifier"))),
        ("choice(a: 0.7, b: 0.3)", Choice(("a", "b"), (0.7, 0.3))),
        ("choice([32, 32], [64], true, 0.5)", Choice(((32, 32), (64,), True, 0.5))),
        ('choice("a, b": 1, "c: (d": 2)', Choice(("a, b", "c: (d"), (1.0, 2.0))),
        ("zero or log(1e-6, 1e-2)", ZeroOr(LogUniform(1e-6, 1e-2))),
        ("zero(0.3) or uniform(1, 2)", ZeroOr(Uniform(1.0, 2.0), 0.3)),
    ],
)
def test_the_forms(text: str, prior: AbstractPrior) -> None:
    assert repr(parse_prior(text)) == repr(prior)


def test_words_become_parts() -> None:
    parts: dict[str, Any] = {"Tanh": Tanh(), "Rectifier": Rectifier()}
    prior = parse_prior("choice(Tanh: 1, Rectifier: 3)", parts.__getitem__)
    assert prior == Choice((Tanh(), Rectifier()), (1.0, 3.0))
    assert prior_text(prior) == "choice(Tanh: 1.0, Rectifier: 3.0)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lgo(1e-4, 1)", "invalid range 'lgo(1e-4, 1)'. Write it as log(1e-4, 1e-1)."),
        ("integer(1, 2)", "Write it as integers(16, 1024)."),
        ("0.5", "invalid range '0.5'. Write one of: uniform(0, 0.5), log("),
        ("", "invalid range ''. Write one of:"),
        ("zero(0.5)", "Write it as zero or log(1e-6, 1e-2)."),
        ("log(1e-4)", "needs two ends. Write it as log(1e-4, 1e-1)."),
        ("log(a, 1)", "'a' is not a number. Write it as log("),
        ("uniform(0, inf)", "'inf' is not a number"),
        ("uniform(0, 1e999)", "'1e999' is not a number"),
        ("integers(1, 2.5)", "'2.5' is not a whole number"),
        ("choice()", "a value of a choice is missing"),
        ("choice(1,,2)", "a value of a choice is missing"),
        ("choice(a: 0.5, b)", "give every value a weight, or none"),
        ("choice(a: 1: 2)", "more than one weight"),
        ("choice(a: x)", "'x' is not a number"),
        ('choice("a)', "invalid quoted text"),
        ("log(1, 0.1)", "low end must lie below"),
        ("log(0, 1)", "needs a positive low end"),
        ("zero(1.5) or log(1, 2)", "probability in [0, 1)"),
    ],
)
def test_a_wrong_range_is_refused_with_the_right_form(text: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_prior(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


_plain = st.recursive(
    st.integers(-(2**62), 2**62) | _number | st.booleans() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in {"search", "ranges", "recipe", "seed", "budget", "data"}
)


@given(st.dictionaries(_names, _plain, max_size=4), st.dictionaries(_names, _plain, max_size=3), priors())
@settings(max_examples=100, deadline=None)
def test_a_study_file_says_what_was_set(tmp_path_factory: Any, search: Any, recipe: Any, prior: Any) -> None:
    path = tmp_path_factory.mktemp("study") / "study.toml"
    given_settings = {"data": "digits", "seed": 3, "budget": "32 trials", **search}
    text = write_study_file({**given_settings, "ranges": {"model.dropout": prior}, "recipe": recipe, "nothing": None})
    path.write_text(text, encoding="utf-8", newline="")
    found = read_study_file(path)
    assert repr(found) == repr({**given_settings, "ranges": {"model.dropout": prior_text(prior)}, "recipe": recipe})
    assert write_study_file(found) == text


def test_the_file_reads_well_and_nested_tables_mean_the_same(tmp_path: Path) -> None:
    settings_ = {
        "data": "digits",
        "target": ["y"],
        "strategy": "random",
        "budget": "10min",
        "seed": 0,
        "kind": {"zip": "category"},
        "ranges": {"optimiser.learning_rate": "log(1e-4, 1e-1)"},
        "recipe": {"model.widths": [256, 256], "model.activation": "Tanh"},
    }
    text = write_study_file(settings_)
    assert '[ranges]\n"optimiser.learning_rate" = "log(1e-4, 1e-1)"\n' in text
    assert tomllib.loads(text)["search"]["kind"] == {"zip": "category"}
    path = tmp_path / "study.toml"
    path.write_text(text)
    assert read_study_file(path) == settings_
    path.write_text('[search]\ndata = "digits"\n[ranges.optimiser]\nlearning_rate = "log(1e-4, 1e-1)"\n')
    assert read_study_file(path)["ranges"] == settings_["ranges"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[search", "is not TOML"),
        ("[serach]\n", "unknown table [serach]. Did you mean 'search'?"),
        ("search = 3\n", "`search` must be a table"),
        ("[search]\n", 'needs `data`, a file or a named set, such as data = "digits"'),
        ('[search]\ndata = "d"\nseed = -1\n', "`seed` must be a whole number"),
        ('[search]\ndata = "d"\nbudget = "soon"\n', "budget: invalid budget 'soon'"),
        ('[search]\ndata = "d"\nbudgte = "1h"\n', "unknown option `budgte` in [search]. Did you mean 'budget'?"),
        ('[search]\ndata = "d"\n[ranges]\n"a.b" = "lg(1, 2)"\n', "[ranges] a.b: invalid range 'lg(1, 2)'"),
        ('[search]\ndata = "d"\n[ranges]\n"a.b" = 3\n', "[ranges] a.b: invalid range 3. Write it in quotes"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(RequestError) as caught:
        read_study_file(path, known=("data", "seed", "budget", "target"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(RequestError, match="cannot be read"):
        read_study_file(tmp_path / "none.toml")


def test_what_no_file_can_hold_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot be written to a study file: Object of type 'object'"):
        write_study_file({"data": object()})


def test_a_study_file_may_say_where_its_trials_are(tmp_path):
    """For the folder that it is in: the same study elsewhere has its own."""
    file, trials = tmp_path / "study.toml", {"store": "sqlite:///trials.db", "name": "first"}
    file.write_text(write_study_file({"data": "iris", "trials": trials}))
    assert read_store(file) == ("sqlite:///trials.db", "first")
    assert "trials" not in read_study_file(file, ("data",))
    file.write_text(write_study_file({"data": "iris", "trials": {}}))
    assert read_store(file) == (None, None)
