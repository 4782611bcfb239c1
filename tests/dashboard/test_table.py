"""Tables hold what pages show and export: every value comes back from Arrow as it was, and nothing missing is zero."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dashboard
from dashboard.table import Table

MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123_456, tzinfo=UTC)


class Color(StrEnum):
    RED = "red"


def back(values: list[Any]) -> list[Any]:
    column = Table({"one": values}).as_arrow()["one"]
    column.validate(full=True)
    return list(column.to_pylist())


@settings(max_examples=60)
@given(
    st.one_of(
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
        st.lists(st.none() | st.floats(allow_nan=False)),
        st.lists(st.none() | st.booleans()),
        st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))),
    )
)
def test_values_come_back_as_they_were(values: list[Any]) -> None:
    assert back(values) == values


def test_moments_keep_their_instant_and_zone() -> None:
    berlin = MOMENT.astimezone(ZoneInfo("Europe/Berlin"))
    assert back([MOMENT, None]) == [MOMENT, None]
    (told,) = back([berlin])
    assert told == berlin and told.utcoffset() == berlin.utcoffset()
    assert back([MOMENT.replace(tzinfo=None)]) == [MOMENT.replace(tzinfo=None)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([1.5, float("nan")], [1.5, None]),
        ([1, "x", None], ["1", "x", None]),
        ([2**63], ["9223372036854775808"]),
        ([Color.RED, None], ["red", None]),
        ([Decimal("0.10"), None], [Decimal("0.10"), None]),
        ([MOMENT, MOMENT.replace(tzinfo=None)], [str(MOMENT), str(MOMENT.replace(tzinfo=None))]),
        ([None, None], [None, None]),
    ],
)
def test_mixed_and_missing_values_are_told_as_they_are(values: list[Any], expected: list[Any]) -> None:
    assert back(values) == expected


def test_rows_that_lack_a_column_have_nothing_there() -> None:
    table = Table([{"a": 1}, {"b": 2}, {"a": 3, "b": 4}])
    assert table.columns == ["a", "b"] and list(table.rows()) == [(1, None), (None, 2), (3, 4)]
    assert table.without("a").columns == ["b"] and len(table) == 3
    assert Table([], columns=["a"]).columns == ["a"] and Table([], columns=["a"]).empty


def test_csv_writes_what_is_missing_as_nothing() -> None:
    table = Table([("x,y", None, Decimal("0.10")), ("z", float("nan"), None)], columns=["name", "share", "usd"])
    assert table.as_csv() == 'name,share,usd\r\n"x,y",,0.10\r\nz,,\r\n'


def test_a_page_loads_no_pandas() -> None:
    code = (
        "import sys\nfrom dashboard.plot import Plot\nfrom dashboard.table import Table\n"
        "Table([{'a': 1, 'b': 'x', 'c': None, 'd': 1.5}]).as_arrow()\nPlot().add_bar(x=[1], y=[2]).as_json()\n"
        "print('pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False", "which takes 40 MB"


def test_no_page_has_streamlit_ask_pandas_what_a_table_is() -> None:
    for path in Path(dashboard.__file__).parent.rglob("*.py"):
        source = path.read_text()
        assert source.count("st.dataframe(") == source.count("lazy=False"), path.name
