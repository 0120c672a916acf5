"""Numbers with symbols: what they mean, and what is left alone."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradwise.data.reading.new_rows import read_rows
from gradwise.data.reading.read import ReadRequest, read
from gradwise.data.reading.tables import from_frame
from gradwise.data.reading.written_numbers import decimal_mark, is_number, parse_written
from gradwise.runtime.errors import RequestError
from gradwise.specs.dataset import Column, Numbers


@pytest.mark.parametrize(
    ("texts", "mark", "values"),
    [
        (["$1,200.50", "$950.00", "-$3", "($7.25)"], ".", [1200.5, 950, -3, -7.25]),
        (["1 200 €", "35 €", "12\u00a0345\u202f€"], ".", [1200, 35, 12345]),
        (["1.200,50 €", "-950 €"], ",", [1200.5, -950]),
        (["1.200 €", "950 €"], ",", [1200, 950]),  # money has no three decimals
        (["1.459 €", "1.50 €"], ".", [1.459, 1.5]),  # unless another value shows the mark
        (["1,200", "12,345,678", "7"], ".", [1200, 12345678, 7]),
        (["1,200", "12,5"], ",", [1.2, 12.5]),
        (["0,125 €", "3,250 €"], ",", [0.125, 3.25]),
        (["12%", "7.5 %", "-0.125%"], ".", [12, 7.5, -0.125]),
        (["CHF 1'200.50", "CHF 80"], ".", [1200.5, 80]),
        (["USD 1,000", "1200"], ".", [1000, 1200]),
    ],
)
def test_the_column_decides_what_its_values_mean(texts: list[str], mark: str, values: list[float]) -> None:
    assert decimal_mark(texts) == mark
    assert [parse_written(text, mark) for text in texts] == values


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2.5"],  # plain
        ["$5", "€5"],  # two currencies
        ["12%", "0.5"],  # with and without
        ["$5", "tba"],
        ["1.2.3", "1.2.4"],
        ["12,34,56"],
        ["5 kg", "7 kg"],
        ["$", "%"],
        ["(5", "$--5"],
        ["2024-01-31"],
        ["$5%"],
    ],
)
def test_other_columns_are_left_alone(texts: list[str]) -> None:
    assert decimal_mark(texts) == ""


def test_a_number_is_known_in_any_style() -> None:
    assert all(map(is_number, ["1e5", "1.200,5", "$3", "7%"]))
    assert not any(map(is_number, ["n/k", "-", "1O", "$"]))


AMOUNTS = np.random.default_rng(0).uniform(200, 30_000, 40).round(2)


def _frame() -> pd.DataFrame:
    german = [f"{value:,.2f} €".translate(str.maketrans(",.", ".,")) for value in AMOUNTS]
    return pd.DataFrame(
        {
            "price": [f"${value:,.2f}" for value in AMOUNTS],
            "preis": german,
            "share": [f"{value % 97:.1f}%" for value in AMOUNTS],
            "few": ["5%", "10%"] * 20,  # though these could be categories
            "y": AMOUNTS / 100,
        }
    )


def test_a_file_with_currencies_and_percentages_is_a_table_of_numbers(tmp_path: Path) -> None:
    frame = _frame()
    frame.loc[3, "price"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)
    dataset = read(str(tmp_path / "a.csv"), ReadRequest(targets=("y",)))
    assert dataset.columns == (
        Column("price", decimal="."),
        Column("preis", decimal=","),
        Column("share", decimal="."),
        Column("few", decimal="."),
    )
    expected = np.column_stack([AMOUNTS, AMOUNTS, [float(f"{v % 97:.1f}") for v in AMOUNTS], [5, 10] * 20])
    expected[3, 0] = np.nan
    np.testing.assert_array_equal(dataset.inputs, expected)
    assert any("`price`" in note and "numbers" in note for note in dataset.notes)
    assert len(from_frame(frame.drop(columns="y")).columns) == 4
    forced = read(str(tmp_path / "a.csv"), ReadRequest(targets=("y",), kinds={"few": "category"}))
    assert forced.columns[3] == Column("few", "category", ("10%", "5%"))


def test_new_rows_are_read_with_the_decimal_mark_of_training(tmp_path: Path) -> None:
    """Alone, 1.200 looks like a number with three decimals."""
    file = tmp_path / "new.csv"
    file.write_text("preis\n1.200\n950\n")
    rows = read_rows(str(file), (Column("preis", decimal=","),), (1,))
    np.testing.assert_array_equal(rows.inputs, [[1200], [950]])
    file.write_text('preis\n1200.5\n"3,5 €"\n')
    np.testing.assert_array_equal(read_rows(str(file), (Column("preis", decimal=","),), (1,)).inputs, [[1200.5], [3.5]])
    file.write_text("preis\n3 €\nfree\n")
    with pytest.raises(RequestError, match=r"`preis`: 'free' in data row 2 is not a number"):
        read_rows(str(file), (Column("preis", decimal=","),), (1,))


def test_a_target_with_a_currency_is_a_number(tmp_path: Path) -> None:
    frame = _frame()[["y", "price"]]
    frame.to_csv(tmp_path / "a.csv", index=False)
    dataset = read(str(tmp_path / "a.csv"), ReadRequest(targets=("price",)))
    assert isinstance(dataset.task, Numbers)
    np.testing.assert_array_equal(dataset.targets[:, 0], AMOUNTS)


def test_one_value_that_is_no_number_is_named(tmp_path: Path) -> None:
    frame = _frame()[["price", "y"]]
    frame.loc[7, "price"] = "tba"
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(RequestError, match=r"`price` contains numbers, but 'tba' in data row 8 is not one"):
        read(str(tmp_path / "a.csv"), ReadRequest(targets=("y",)))
    frame["price"] = [f"{'$€'[i % 2]}{i}" for i in range(len(frame))]
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(RequestError, match=r"`price` contains numbers with different symbols"):
        read(str(tmp_path / "a.csv"), ReadRequest(targets=("y",)))
