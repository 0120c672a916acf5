"""`--profile`: where the time of a run went, in the terminal, the page, the folder and Python."""

import json
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import gradwise as gw

TINY = ("--set", "model=Mlp", "--set", "model.widths=8", "--set", "stopping=Off", "--set", "stopping.epochs=3")
FIT = ("fit", "flowers.csv", "--target", "kind", *TINY, "--no-baselines")
PHASES = {
    *("starting", "reading", "checking the data", "splitting", "scaling", "building the network", "compiling"),
    *("updates", "validation", "checkpoints", "this profile", "measurement", "simpler models and columns", "report"),
    "other",
}


def test_the_phases_of_a_fit_sum_to_its_time_and_change_nothing(table, gradwise) -> None:
    said = gradwise(*FIT, "--profile", "--out", "timed")
    assert said.code == 0
    told = json.loads(Path("timed/profile.json").read_text())
    phases = {one["name"]: one for one in told["phases"]}
    assert set(phases) == PHASES
    assert sum(one["seconds"] for one in told["phases"]) == pytest.approx(told["seconds"], rel=1e-6)
    assert sum(one["share"] for one in told["phases"]) == pytest.approx(1.0)
    assert phases["other"]["share"] < 0.25
    assert phases["validation"]["times"] == parquet.read_metadata("timed/history.parquet").num_rows
    assert all(one["seconds"] >= 0 for one in told["phases"])
    for name in PHASES:
        assert name in said.out
    page = Path("timed/report.html").read_text()
    assert "Where the time went" in page
    assert "Seconds of each phase" in page
    plain = gradwise(*FIT, "--out", "plain")
    assert "where the time went" not in plain.out
    assert not Path("plain/profile.json").exists()
    assert "Where the time went" not in Path("plain/report.html").read_text()
    assert Path("plain/model.safetensors").read_bytes() == Path("timed/model.safetensors").read_bytes()
    assert gradwise(*FIT, "--out", "timed", "--overwrite").code == 0
    assert not Path("timed/profile.json").exists(), "that of the run which was replaced"


def test_a_trace_of_jax_is_written_on_request_and_a_planted_link_is_replaced(table, gradwise) -> None:
    refused = gradwise(*FIT, "--trace", "--out", "traced")
    assert refused.code == 2
    assert "--trace belongs to --profile" in refused.err
    Path("precious").mkdir()
    Path("precious/file").write_text("mine")
    Path("traced").mkdir()
    Path("traced/trace").symlink_to(Path("precious").resolve())
    assert gradwise(*FIT, "--profile", "--trace", "--out", "traced", "--overwrite").code == 0
    assert Path("precious/file").read_text() == "mine"
    assert not Path("traced/trace").is_symlink()
    assert list(Path("traced/trace").rglob("*.xplane.pb"))


def test_from_python_it_is_a_frame_and_a_picture(table) -> None:
    recipe = {"model": "Mlp", "set": {"model.widths": 8, "stopping": "Off", "stopping.epochs": 3}}
    model = gw.fit("flowers.csv", target="kind", profile=True, no_baselines=True, progress=False, **recipe)
    frame = model.profile
    assert set(frame["name"]) == PHASES - {"report", "checkpoints"}
    assert frame["seconds"].min() >= 0
    assert model.plot("profile") is not None
    assert gw.fit("flowers.csv", target="kind", no_baselines=True, progress=False, **recipe).profile.empty
