"""Packages of extras: what is missing is named with what installs it."""

import sys

import pytest

from gradwise.runtime.errors import RequestError
from gradwise.runtime.optional_package import check_installed, import_optional


def test_a_package_that_is_there_is_imported_on_demand():
    check_installed("numpy", "numbers")
    assert import_optional("json.decoder", "json") is sys.modules["json.decoder"]


def test_a_package_that_is_missing_is_one_line():
    for ask in (check_installed, import_optional):
        with pytest.raises(RequestError) as refused:
            ask("no_such_board", "board")
        assert str(refused.value) == "no_such_board is not installed. Run: pip install gradwise[board]"
