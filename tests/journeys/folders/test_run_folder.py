import os

import pytest

from gradwise.journeys.folders import run_folder as folders
from gradwise.runtime.errors import RequestError


def write_all(staging, mark="new", report=True):
    for name in ("recipe.json", "history.parquet", "model.safetensors", "result.json"):
        (staging / name).write_text(mark)
    if report:
        (staging / "report.html").write_text(mark)


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def old_run(folder):
    folder.mkdir()
    write_all(folder, "old")
    (folder / folders.CHECKPOINT).write_text("old")
    (folder / "notes.txt").write_text("mine")
    return contents(folder)


def test_the_default_folder_has_the_data_s_name_and_is_new(here):
    first = folders.choose_folder(None, "iris")
    assert first.parts[0] == "runs"
    assert first.name.startswith("iris-2")
    first.mkdir(parents=True)
    assert folders.choose_folder(None, "iris") != first
    assert folders.choose_folder("mine", "iris").name == "mine"


def fail_in(folder, **how):
    """Claims a folder, leaves a checkpoint there if told to, and fails; returns where the run worked."""
    checkpoint = how.pop("checkpoint", None)
    write = how.pop("write", None)
    with folders.claim(folder, **{"resume": False, "overwrite": False, **how}) as work:
        if checkpoint:
            (work / folders.CHECKPOINT).write_text(checkpoint)
        if write:
            folders.publish_files(folder, work, write)
        raise KeyError


def test_a_new_folder_that_stays_empty_is_removed_with_its_parents(here):
    with pytest.raises(KeyError):
        fail_in(here / "a" / "b")
    assert list(here.iterdir()) == []


def test_a_folder_with_a_checkpoint_stays_after_a_failure(here):
    with pytest.raises(KeyError):
        fail_in(here / "a", checkpoint="half")
    assert contents(here / "a") == {folders.CHECKPOINT: "half"}


def test_what_is_replaced_stays_until_the_new_is_whole(here):
    before = old_run(here / "a")
    with folders.claim(here / "a", resume=False, overwrite=True) as work:
        (work / folders.CHECKPOINT).write_text("new")
        assert contents(here / "a") == before
        folders.publish_files(here / "a", work, lambda staging: write_all(staging, report=False))
    after = contents(here / "a")
    assert after.pop("notes.txt") == "mine"
    assert set(after.values()) == {"new"}
    assert "report.html" not in after  # the old one told of another run
    assert [path.name for path in (here / "a").iterdir() if path.is_dir()] == []


def test_a_replacement_that_fails_leaves_the_old_run_and_can_go_on(here):
    before = old_run(here / "a")

    def full(staging):
        write_all(staging)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail_in(here / "a", overwrite=True, checkpoint="new", write=full)
    assert contents(here / "a") == before
    with folders.claim(here / "a", resume=True, overwrite=False) as again:
        assert again == here / "a" / ".next"
        assert contents(again) == {folders.CHECKPOINT: "new"}
        folders.publish_files(here / "a", again, write_all)
    assert contents(here / "a")[folders.CHECKPOINT] == "new"


def test_another_overwrite_begins_anew(here):
    old_run(here / "a")
    with pytest.raises(KeyError):
        fail_in(here / "a", overwrite=True, checkpoint="half")
    with folders.claim(here / "a", resume=False, overwrite=True) as work:
        assert contents(work) == {}


def test_a_link_that_is_replaced_leaves_what_it_points_at(here):
    """One to a folder, and one to nothing."""
    old_run(here / "a")
    (here / "theirs").mkdir()
    (here / "theirs" / "1.safetensors").write_text("theirs")
    (here / "a" / "contenders").symlink_to(here / "theirs")
    (here / "a" / "population").symlink_to(here / "nowhere")
    with folders.claim(here / "a", resume=False, overwrite=True) as work:
        for name in ("contenders", "population"):
            (work / name).mkdir()
        folders.publish_files(here / "a", work, write_all)
    assert not any((here / "a" / name).is_symlink() for name in ("contenders", "population"))
    assert contents(here / "theirs") == {"1.safetensors": "theirs"}


def test_half_written_files_of_a_killed_process_are_removed(here):
    old_run(here / "a")
    (here / "a" / "report.html.0123456789abcdef.partial").write_text("half")
    with folders.claim(here / "a", resume=True, overwrite=False):
        assert not list((here / "a").glob("*.partial"))


@pytest.mark.parametrize("stop", range(5))
def test_a_result_never_stands_beside_files_of_another_run(stop, here, monkeypatch):
    """Whatever moment the process dies at while files are moved, there is no `result.json` to vouch for them."""
    old_run(here / "a")
    moved = []

    def dying(source, target, replace=os.replace):
        if len(moved) == stop:
            raise KeyboardInterrupt
        moved.append(target)
        replace(source, target)

    monkeypatch.setattr(folders.os, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        folders.publish_files(here / "a", here / "a", write_all)
    assert "result.json" not in contents(here / "a")


def test_a_folder_that_cannot_be_written_is_refused_and_not_left_behind(here, monkeypatch):
    def denied(*words, **more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folders.tempfile, "TemporaryFile", denied)
    with pytest.raises(RequestError, match="a/b cannot be written: Permission denied"):
        fail_in(here / "a" / "b")
    assert list(here.iterdir()) == []
