"""The data as understood, the recipe, and the lines that repeat a run."""

import dataclasses

import jax
import pytest

import gradwise.journeys.fit
from gradwise.records.data_read import DataRead
from gradwise.reporting.blocks import Cell, HeadingRow, Prose, Table
from gradwise.reporting.pages.provenance import chapter_row, data_blocks, python_lines, recipe_blocks
from gradwise.specs.paths import knobs
from gradwise.specs.serialisation import to_json


def rows_of(blocks):
    return next(block for block in blocks if isinstance(block, Table)).rows


def prose_of(blocks):
    return " ".join(block.text for block in blocks if isinstance(block, Prose))


def test_a_row_of_the_chapter_has_its_words_where_they_are_known():
    assert chapter_row("C1") == "C1, the initial learning rate"
    assert chapter_row("Z9") == "Z9"


def test_every_knob_of_the_recipe_is_listed_once(classes_record):
    listed, owner = [], ""
    for row in rows_of(recipe_blocks(classes_record)):
        if isinstance(row, HeadingRow):
            owner = row.text
        else:
            listed.append(f"{owner}.{row[0].text}")
    assert [path for path, _, _ in knobs(classes_record.recipe) if listed.count(path) != 1] == []


def test_changed_knobs_are_set_off_and_only_those(classes_record):
    rows = rows_of(recipe_blocks(classes_record))
    strong = {row[0].text: (row[1].text, row[2]) for row in rows if not isinstance(row, HeadingRow) and row[1].strong}
    assert strong == {"widths": ("32", "256, 256"), "learning_rate": ("0.003", "0.0015")}
    assert prose_of(recipe_blocks(classes_record)).startswith("2 of ")


def test_the_recommended_recipe_says_that_nothing_was_changed(classes_record):
    plain = dataclasses.replace(classes_record, recipe=gradwise.defaults.classification())
    assert "have their default values" in prose_of(recipe_blocks(plain))


def test_a_part_without_knobs_is_a_choice_of_its_owner(classes_record):
    rows = rows_of(recipe_blocks(classes_record))
    assert (Cell("activation", code=True), Cell("Rectifier"), "Rectifier", "", "") in rows


def test_a_model_of_the_users_own_is_named(classes_record):
    import equinox as eqx

    own = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    recipe = dataclasses.replace(classes_record.recipe, model=own)
    rows = rows_of(recipe_blocks(dataclasses.replace(classes_record, recipe=recipe)))
    assert HeadingRow("model", "Linear") in rows


def test_the_data_as_understood(numbers_record):
    blocks = list(data_blocks(numbers_record.data))
    said = prose_of(blocks)
    assert "442 rows: 265 for training, 88 for validation, 89 for test." in said
    assert "10 columns: number (9), category (1); 1 with missing values, none constant." in said
    assert ("s6", "number", "3", "") in rows_of(blocks)  # no column is constant, so nothing is said of it
    assert ("sex", "category", "0", "2") in rows_of(blocks)


def test_more_columns_than_are_listed_are_counted(classes_record):
    blocks = list(data_blocks(dataclasses.replace(classes_record.data, more=99_936)))
    table = next(block for block in blocks if isinstance(block, Table))
    assert table.caption == "100,000 columns"
    assert table.folded
    assert "99,936 more" in table.note


def test_no_data_says_nothing():
    assert list(data_blocks(DataRead())) == []


def test_the_python_lines_repeat_the_run(classes_record, tmp_path, monkeypatch):
    """They are run, up to the training itself, which is caught."""
    caught = {}
    monkeypatch.setattr(
        gradwise.journeys.fit, "fit", lambda recipe, dataset, **given: caught.update(given, recipe=recipe, data=dataset)
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.json").write_text(to_json(classes_record.recipe))
    (tmp_path / "it's.csv").write_text("a,b,c\n" + "\n".join(f"{i},{i % 3},{'xy'[i % 2]}" for i in range(20)))
    command = "gradwise fit 'it'\"'\"'s.csv' --target c --drop b --metric log_loss --class-weight x=1,y=2 --seed 7"
    exec("\n".join(python_lines(command, seed=7)), {})
    assert caught["recipe"] == classes_record.recipe
    assert caught["data"].task.kind == "classes"
    assert [column.name for column in caught["data"].columns] == ["a"]
    assert (caught["metric"], caught["class_weight"]) == ("log_loss", {"x": 1.0, "y": 2.0})
    assert jax.random.key_data(caught["key"]).tolist() == jax.random.key_data(jax.random.key(7)).tolist()


@pytest.mark.parametrize("command", ["", "gradwise fit 'unclosed", "make demo", "gradwise fit a b"])
def test_a_line_that_is_not_understood_leaves_the_data_open(command):
    lines = python_lines(command, seed=0)
    assert any(line.startswith("dataset = ...") for line in lines)
    compile("\n".join(lines), "lines", "exec")
