"""`gw.fit`, `gw.search` and `gw.check` from Python: data in any form, parts of any kind, one object back."""

import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pyarrow as pa
import pytest

import gradwise as gw
from gradwise.cli.main import run_program
from gradwise.runtime.errors import RequestError, WorkError

from .test_model import houses

SMALL = {"stopping.epochs": 8, "model.widths": (16,)}


@pytest.fixture(scope="module")
def model() -> gw.Model:
    return gw.fit(houses(), target="dear", set=SMALL, seed=3)


def test_python_trains_the_network_of_the_command_line(model: gw.Model, tmp_path: Path) -> None:
    houses().to_csv(tmp_path / "houses.csv", index=False)
    asked = ["fit", str(tmp_path / "houses.csv"), "--target", "dear", "--out", str(tmp_path / "run"), "--quiet"]
    knobs = ["--set", "stopping.epochs=8", "--set", "model.widths=16", "--seed", "3"]
    assert run_program([*asked, *knobs]) == 0
    written = gw.load(tmp_path / "run")
    frame = houses()
    np.testing.assert_array_equal(model.predict_proba(frame), written.predict_proba(frame))
    assert model.test == written.test
    assert model.test_interval == written.test_interval
    pd.testing.assert_frame_equal(
        model.history.drop(columns="seconds"), written.history.drop(columns="seconds"), check_dtype=False
    )
    said = [[(one.code, one.what) for one in found.record.findings] for found in (model, written)]
    assert said[0] == said[1]
    assert model.plots == written.plots


@pytest.mark.parametrize("form", ["path", "arrow", "records", "apart", "series"])
def test_data_may_come_in_any_form(model: gw.Model, tmp_path: Path, form: str) -> None:
    frame = houses()
    houses().to_parquet(tmp_path / "houses.parquet")
    apart = frame.drop(columns="dear")
    forms: dict[str, tuple[Any, ...]] = {
        "path": (tmp_path / "houses.parquet",),
        "arrow": (pa.Table.from_pandas(frame),),
        "records": (frame.to_dict("records"),),
        "apart": (apart, frame[["dear"]]),
        "series": (apart, frame["dear"]),
    }
    named = {} if form in ("apart", "series") else {"target": "dear"}
    again = gw.fit(*forms[form], **named, set=SMALL, seed=3)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_arrays_need_no_names() -> None:
    X, y = np.random.default_rng(0).normal(size=(400, 4)), np.arange(400) % 2
    X[:, 0] += 4 * y
    longer = {**SMALL, "stopping.epochs": 40}
    together = gw.fit((X, y), set=longer)
    apart = gw.fit(X.tolist(), y.tolist(), set=longer)
    np.testing.assert_array_equal(together.predict(X), apart.predict(X))
    assert together.classes == (0, 1)
    np.testing.assert_array_equal(gw.fit(X.astype(object), y, set=longer).predict(X), apart.predict(X))
    assert together.score(X, y) > 0.9
    numbers = gw.fit(X, X[:, 1] * 2.0, set=SMALL)
    assert numbers.record.task == "numbers"
    several = gw.fit(X, pd.DataFrame({"a": X[:, 1], "b": X[:, 2]}), set=SMALL)
    assert several.predict(X).shape == (400, 2)


def test_a_test_set_may_be_in_memory_too() -> None:
    frame = houses(160)
    model = gw.fit(frame[:120], target="dear", test=frame[120:], set=SMALL)
    assert model.record.data.rows.test == 40
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    assert gw.fit(X[:40], y[:40], test=(X[40:], y[40:]), set=SMALL).record.data.rows.test == 20


def test_one_object_answers_everything(model: gw.Model, tmp_path: Path) -> None:
    assert 0.0 <= model.test <= 1.0
    assert model.test_interval[0] <= model.test <= model.test_interval[1]
    assert len(repr(model).splitlines()) < 15
    assert "Test error" in repr(model)
    assert model._repr_html_().startswith("<")
    assert model.report(tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert len(repr(model.record)) < 1000
    model.save(tmp_path / "run")
    again = gw.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(houses()), model.predict_proba(houses()))
    assert repr(again) == repr(model)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["test"] == model.test
    with pytest.raises(RequestError, match="overwrite=True"):
        model.save(tmp_path / "run")
    again.save(tmp_path / "run", overwrite=True)
    assert gw.load(tmp_path / "run").test == model.test


def test_parts_may_be_names_specs_transformations_modules_and_functions() -> None:
    frame = houses()
    X = frame[["size"]].fillna(100.0).to_numpy() / 100
    y = (frame["dear"] == "yes").to_numpy().astype(int)
    short = gw.Patience(epochs=10.0)
    mlp = eqx.nn.MLP(1, 2, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
    by_name = gw.fit(X, y, optimiser="Sgd", set={"stopping": "Off", "stopping.epochs": 2})
    assert isinstance(by_name.record.recipe.optimiser, gw.Sgd)
    assert by_name.record.data.command == 'gw.fit(data, targets, set={"optimiser": "Sgd", "stopping": "Off", ' + (
        '"stopping.epochs": 2.0})'
    )
    by_spec = gw.fit(X, y, optimiser=gw.Adam(0.01), stopping=short)
    assert by_spec.record.recipe.optimiser.learning_rate == 0.01
    by_optax = gw.fit(X, y, optimiser=optax.adam(0.01), model=mlp, stopping=short)
    assert by_optax.test < 0.6

    def loss(output: Any, target: Any) -> Any:
        return jnp.sum((output - target) ** 2)

    by_function = gw.fit(X, X[:, 0] * 2, model=gw.Mlp(widths=(8,)), criterion=loss, stopping=short)
    assert by_function.score(X, X[:, 0] * 2) > 0.2
    whole = gw.defaults.classification(model=gw.Mlp(widths=(4,)), stopping=short)
    assert gw.fit(X, y, recipe=whole).record.recipe.model.widths == (4,)


def test_a_finished_run_of_other_objects_is_never_returned_for_this_one(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    y = (X[:, 0] > 0).astype(int)
    given: dict[str, Any] = {"set": {"stopping.epochs": 2}, "out": tmp_path / "run"}
    gw.fit(X, y, **given)
    with pytest.raises(RequestError, match="belongs to another run: its data, recipe or seed differ"):
        gw.fit(X, 1 - y, **given, resume=True)
    own: dict[str, Any] = {"stopping": gw.Off(epochs=2.0), "out": tmp_path / "own"}
    slow = gw.fit(X, y, optimiser=optax.adam(1e-3), **own)
    same = gw.fit(X, y, optimiser=optax.adam(1e-3), **own, resume=True)
    np.testing.assert_array_equal(same.predict_proba(X), slow.predict_proba(X))
    with pytest.raises(RequestError, match="belongs to another run"):
        gw.fit(X, y, optimiser=optax.adam(1e-1), **own, resume=True)
    search: dict[str, Any] = {**given, "out": tmp_path / "study", "trials": 2, "folds": 1, "on": "here"}
    first = gw.search(X, y, **search)
    again = gw.search(X, y, **search, resume=True)
    np.testing.assert_array_equal(first.trials["score"], again.trials["score"])
    with pytest.raises(RequestError, match="data"):
        gw.search(X, 1 - y, **search, resume=True)


def test_modules_of_flax_are_models() -> None:
    from flax import linen, nnx

    class Linen(linen.Module):
        @linen.compact
        def __call__(self, x: Any, train: bool = False) -> Any:
            x = linen.Dropout(0.1, deterministic=not train)(linen.relu(linen.Dense(16)(x)))
            return linen.Dense(2)(x)

    class Nnx(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.hidden, self.output = nnx.Linear(3, 16, rngs=rngs), nnx.Linear(16, 2, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.output(self.dropout(nnx.relu(self.hidden(x))))

    draw = np.random.default_rng(0)
    X = draw.normal(size=(300, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    for module in (Linen(), Nnx(nnx.Rngs(0))):
        found = gw.fit(X, y, model=module, optimiser=gw.Adam(0.01), stopping=gw.Off(epochs=40.0))
        assert found.score(X, y) > 0.9
        np.testing.assert_array_equal(found.predict_proba(X[:9]), found.predict_proba(X)[:9])  # without dropout

    class Statistics(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return linen.Dense(2)(linen.BatchNorm(use_running_average=False)(x))

    with pytest.raises(RequestError, match="statistics that a forward pass updates"):
        gw.fit(X, y, model=Statistics())


def test_a_network_without_a_written_form_is_saved_and_filled_again(tmp_path: Path) -> None:
    """Its weights are kept; its code comes from the user. What was trained is never lost to what cannot be written."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)

    def network(seed: int) -> eqx.nn.MLP:
        return eqx.nn.MLP(3, 2, 8, 1, activation=jax.nn.relu, key=jax.random.key(seed))

    model = gw.fit(X, y, model=network(0), optimiser=optax.adam(0.02), out=str(tmp_path / "own"))
    assert (tmp_path / "own" / "report.html").is_file()
    with pytest.raises(RequestError, match=r"arrays of a `MLP`, but not its code: pass a network like it"):
        gw.load(tmp_path / "own")
    with pytest.raises(RequestError, match="arrays of a `MLP`"):
        gw.load(tmp_path / "own", classes=[eqx.nn.MLP(3, 2, 9, 1, key=jax.random.key(0))])
    again = gw.load(tmp_path / "own", classes=[network(1)])
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert "OptaxOptimiser" in type(again.record.recipe.optimiser).__name__


def test_a_search_returns_the_same_object_with_its_trials(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    given: dict[str, Any] = {"set": SMALL, "folds": 2, "on": "here", "seed": 1}
    rates = {"optimiser.optimiser.learning_rate": gw.LogUniform(1e-3, 1e-1)}
    found = gw.search(houses(), target="dear", trials=4, range=rates, callbacks=rows.append, **given)
    assert len(found.trials) == 4
    assert {"number", "score", "optimiser.optimiser.learning_rate"} <= set(found.trials.columns)
    assert [row["trial"] for row in rows] == list(found.trials["number"])
    assert len(found.predict(houses())) == 120
    assert found.record.settings["command"].startswith('gw.search(data, target="dear", ')
    written = gw.search(houses(), target="dear", budget="4 trials", range=rates, out=tmp_path / "study", **given)
    np.testing.assert_array_equal(written.predict_proba(houses()), found.predict_proba(houses()))
    np.testing.assert_array_equal(gw.load(tmp_path / "study").trials["score"], found.trials["score"])
    by_object = gw.search(houses(), target="dear", strategy=gw.Random(), trials=2, **given)
    assert by_object.record.strategy == "Random"
    assert len(repr(found.record)) < 1000


def test_callbacks_get_each_row_of_the_history(model: gw.Model) -> None:
    rows: list[dict[str, Any]] = []
    again = gw.fit(houses(), target="dear", set=SMALL, seed=3, callbacks=[rows.append])
    assert [row["valid_loss"] for row in rows] == list(again.history["valid_loss"])
    np.testing.assert_array_equal(again.predict(houses()), model.predict(houses()))

    def broken(row: dict[str, Any]) -> None:
        raise KeyError("valid_los")

    with pytest.raises(WorkError, match=r"callback .*broken failed: KeyError: 'valid_los'"):
        gw.fit(houses(), target="dear", set=SMALL, callbacks=broken)


def test_a_check_takes_code_data_and_models(model: gw.Model, tmp_path: Path) -> None:
    frame = houses()
    leaking = gw.check(frame.assign(answer=frame["dear"]), target="dear", only="data")
    assert not leaking.passed
    assert leaking.coded("GW202")[0].where == "answer"
    assert len(repr(leaking).splitlines()) < 15
    assert leaking.save(tmp_path / "saved") == tmp_path / "saved"
    gw.check(frame.assign(answer=frame["dear"]), target="dear", only="data", out=tmp_path / "written")
    for folder in ("saved", "written"):
        assert [one.code for one in gw.read_checked(tmp_path / folder).errors] == ["GW202"]
        assert (tmp_path / folder / "report.html").is_file()
    with pytest.raises(RequestError, match="overwrite=True"):
        leaking.save(tmp_path / "saved")
    apart = gw.check(frame.drop(columns="dear").assign(answer=frame["dear"]), frame["dear"], only=["data"])
    assert [one.code for one in apart.errors] == ["GW202"]

    def loss(network: Any, batch: Any) -> Any:
        x, y = batch
        return jnp.mean((jax.vmap(network)(x)[:, 0] - y) ** 2)

    network = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    batch = (jnp.asarray(np.random.default_rng(0).normal(size=(16, 2))), jnp.arange(16.0))
    assert gw.check(loss, network, batch, only="gradient").passed
    assert gw.check(loss=loss, model=network, batch=batch, only="gradient").passed
    assert gw.check(model).verdict == model.record.evidence.verdict.sentence
    assert "gradwise check" in repr(gw.check(model))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.1}, r"no argument `lr`\. Did you mean 'optimiser\.learning_rate'\? Knobs are set by path: set="),
        ({"seeed": 1}, r"no argument `seeed`\. Did you mean 'seed'"),
        ({"max_time": "soon"}, r"max_time soon: expected a time"),
        ({"optimiser": "Adamm"}, r"set optimiser: unknown part 'Adamm'\. Did you mean 'Adam'"),
        ({"optimiser": 3}, "expected an optimiser such as `Adam"),
        ({"target": "kind"}, r"dear"),
        ({"task": "klass"}, r"`task` klass: unknown task"),
        ({"resume": True}, r"`resume` needs `out`"),
        ({"set": "model.dropout=0.2"}, r"`set` maps knobs to values, such as"),
        ({"set": {"model.width": 3}}, r"set: unknown knob `model\.width`\. Did you mean 'model\.widths'"),
    ],
)
def test_mistakes_are_named_as_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((RequestError, TypeError), match=message) as caught:
        gw.fit(houses(40), **{"target": "dear", **arguments})
    assert "--" not in str(caught.value)


def test_what_is_no_data_is_refused_in_one_line() -> None:
    X, y = np.zeros((9, 2)), np.arange(9) % 2
    with pytest.raises(RequestError, match=r"the data come first: gw\.fit\(data, recipe=recipe"):
        gw.fit(gw.defaults.classification(), gw.read("iris"))
    for data in (None, object(), [[1, 2], [3]]):
        with pytest.raises(RequestError, match="pass a path, a named set, a data frame"):
            gw.fit(data)
    with pytest.raises(RequestError, match="9 rows of inputs, but target `y` has 8 values"):
        gw.fit(X, y[:8])
    with pytest.raises(RequestError, match="name the column of a file by target="):
        gw.fit("iris", y)
    with pytest.raises(RequestError, match="`target` has no effect on a Dataset"):
        gw.fit(gw.read("iris"), target="species")
    with pytest.raises(RequestError, match="the target `a` is also an input column"):
        gw.fit(pd.DataFrame({"a": range(9), "b": range(9)}), pd.Series(y, name="a"))


def test_help_lists_every_option_once() -> None:
    for journey in (gw.fit, gw.search):
        names = list(inspect.signature(journey).parameters)
        assert len(names) == len(set(names))
        assert {"data", "targets", "target", "model", "optimiser", "set", "seed", "callbacks", "out"} <= set(names)
        for name in ("target", "metric", "seed"):
            assert f"\n    {name}: " in journey.__doc__


def test_a_training_that_diverges_returns_what_is_left_and_says_so() -> None:
    with pytest.warns(RuntimeWarning, match="diverged|NaN"):
        model = gw.fit("wine", model=gw.Mlp(widths=(8,)), optimiser=gw.Sgd(1e9), stopping=gw.Off(epochs=20.0))
    assert model.record.outcome.name == "diverged"


def test_nothing_is_printed_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gw.fit(houses(60), target="dear", set=SMALL)
    assert capfd.readouterr() == ("", "")
