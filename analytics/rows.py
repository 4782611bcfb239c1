"""Reading the store's rows into our types: a value of another type than the query promises is an error."""

from collections.abc import Sequence
from decimal import Decimal
from typing import cast

from contracts.errors import TollkeeperError


class UnexpectedRow(TollkeeperError):
    """The store answered a query with a type it does not promise: schema and program are of different versions."""

    code = "unexpected_row"


def number_of(value: object) -> int:
    """Read an integer."""
    if isinstance(value, int):
        return int(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an integer; run `python -m migrations`")


def text_of(value: object) -> str:
    """Read a string."""
    if isinstance(value, str):
        return value
    raise UnexpectedRow(f"the store gave {type(value).__name__} for a string; run `python -m migrations`")


def money_of(value: object) -> Decimal:
    """Read an amount of USD, exactly."""
    if isinstance(value, Decimal):
        return value
    raise UnexpectedRow(f"the store gave {type(value).__name__} for money; run `python -m migrations`")


def numbers_of(value: object) -> tuple[float, ...]:
    """Read an array of numbers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(float(item) for item in value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an array; run `python -m migrations`")


def whole_numbers(column: Sequence[object]) -> Sequence[int]:
    """Read a column of integers, as many as a long report has."""
    if set(map(type, column)) <= {int, bool}:
        return cast(Sequence[int], column)
    raise UnexpectedRow("the store gave no integers for a column of them; run `python -m migrations`")


def column_of(value: object) -> Sequence[int]:
    """Return a row's array column as integers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return whole_numbers(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an array; run `python -m migrations`")


def names_of(value: object) -> Sequence[str]:
    """Read an array of strings."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return texts_of(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an array; run `python -m migrations`")


def texts_of(column: Sequence[object]) -> Sequence[str]:
    """Read a column of strings."""
    if set(map(type, column)) <= {str}:
        return cast(Sequence[str], column)
    raise UnexpectedRow("the store gave no strings for a column of them; run `python -m migrations`")
