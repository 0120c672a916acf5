"""The data as understood, the recipe, and the lines that repeat a run."""

import dataclasses

import jax
import optax
import pytest

import gradwise
from gradwise.records.data_read import DataRead
from gradwise.reporting.blocks import Cell, CodeLines, HeadingRow, Prose, Table
from gradwise.reporting.pages.provenance import (
    chapter_row,
    data_blocks,
    python_lines,
    recipe_blocks,
    repeat_blocks,
)
from gradwise.specs.paths import knobs


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


def with_command(record, command):
    return dataclasses.replace(record, data=dataclasses.replace(record.data, command=command))


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("gradwise fit digits --seed 7", ['model = gw.fit("digits", seed=7, recipe=recipe)']),
        ("", ["data = ...  # as in this run", "model = gw.fit(data, seed=0, recipe=recipe)"]),
        (
            "gw.fit(data, targets, optimiser=..., seed=7)",
            [
                "data = ...  # as in this run",
                "targets = ...  # as in this run",
                "model = gw.fit(data, targets, seed=7, recipe=recipe)",
            ],
        ),
    ],
)
def test_the_python_lines_take_the_recipe_from_its_file(command, lines, classes_record):
    told = python_lines(with_command(classes_record, command))
    read = ['with open("recipe.json") as file:  # beside this report', "    recipe = gw.from_json(file.read())"]
    assert told == ["import gradwise as gw", "", *lines[:-1], *read, lines[-1]]
    compile("\n".join(told), "lines", "exec")


def test_code_of_the_user_s_own_is_left_open(classes_record):
    recipe = dataclasses.replace(classes_record.recipe, optimiser=optax.adam(1e-3))
    own = dataclasses.replace(classes_record, recipe=recipe)
    call = "gw.fit(data, optimiser=..., seed=7)"
    assert python_lines(with_command(own, call))[2:] == ["data = ...  # as in this run", f"model = {call}"]
    assert "recipe = ...  # the recipe of this run, with code of your own" in python_lines(with_command(own, ""))


def test_a_run_of_python_has_no_line_of_the_shell(classes_record):
    def titles(command):
        blocks = repeat_blocks(with_command(classes_record, command))
        return [block.caption for block in blocks if isinstance(block, CodeLines)]

    assert titles("gradwise fit digits") == ["In the shell", "In Python"]
    assert titles("gw.fit(data, seed=7)") == ["In Python"]
