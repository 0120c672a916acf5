"""Numbers as people write them: with a currency, a percent sign or thousands separators.

    decimal_mark(["$1,200.50", "$950.00"])      "."
    decimal_mark(["1.200,50 €", "950 €"])       ","
    decimal_mark(["12%", "about 7%"])           "": one of them is not a number
    parse_written("1 200,50 €", ",")            1200.5

A column is read as numbers if all its values are, in one currency or all in percent. A percentage keeps its unit: 12%
is 12. A comma or point before exactly three digits is ambiguous: "1,200" is read as 1200, and so is "1.200 €", because
amounts of money seldom have three decimals; any other value of the column that shows the decimal mark decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CURRENCY = (
    r"[$€£¥₹₩₽₺₫฿]|R\$|kr|zł|Fr\.|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW"
)
_SHAPE = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+−])?\s*(?P<before>{_CURRENCY})?\s*(?P<inner>[-+−])?"
    rf"(?P<body>[\d.,]+(?:[\s'’][\d.,]+)*)\s*(?P<after>{_CURRENCY}|%)?(?P<close>\))?"
)
_BODY = {
    mark: re.compile(rf"(?:[1-9]\d{{0,2}}(?P<group>[{other}\s'’])\d{{3}}(?:(?P=group)\d{{3}})*|\d+)?(?:[{mark}]\d*)?")
    for mark, other in ((".", ","), (",", "."))
}
_THOUSANDS_OR_DECIMALS = re.compile(r"\d\.\d{3}(?!\d)")


def parse_written(text: str, mark: str) -> float | None:
    """The number, whose decimal mark is a point or a comma; None if the text is not a number."""
    shape = _SHAPE.fullmatch(text)
    if shape is None or (shape["open"] is None) != (shape["close"] is None) or (shape["sign"] and shape["inner"]):
        return None
    if (shape["before"] and shape["after"]) or not _BODY[mark].fullmatch(shape["body"]):
        return None
    digits = re.sub(rf"[^\d{mark}]", "", shape["body"]).replace(mark, ".")
    if digits in ("", "."):
        return None
    minus = shape["open"] or (shape["sign"] or shape["inner"] or "+") != "+"
    return -float(digits) if minus else float(digits)


def _units(texts: Sequence[str]) -> set[str]:
    """The currencies and percent signs of these texts; "" for a bare number."""
    shapes = [_SHAPE.fullmatch(text) for text in texts]
    return {(shape["before"] or shape["after"] or "") for shape in shapes if shape is not None}


def is_plain(text: str) -> bool:
    """Whether Python itself reads this as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_number(text: str) -> bool:
    """Whether this is a number, plain or as people write it."""
    return is_plain(text) or any(parse_written(text, mark) is not None for mark in _BODY)


def decimal_mark(texts: Sequence[str]) -> str:
    """The decimal mark of a column of such numbers, or empty if it is not one; plain numbers alone are not."""
    if all(map(is_plain, texts)):
        return ""
    marks = [mark for mark in _BODY if all(parse_written(text, mark) is not None for text in texts)]
    if not marks:
        return ""
    units = _units(texts)
    if len(units - {""}) > 1 or ("%" in units and "" in units):
        return ""
    pointed = [text for text in texts if "." in text]
    money = bool(units - {"", "%"})
    if len(marks) == 2 and money and pointed and all(map(_THOUSANDS_OR_DECIMALS.search, pointed)):
        return ","
    return marks[0]
