"""Converts values of the store's rows; a value of another type than expected raises UnexpectedRow."""

from collections.abc import Sequence
from decimal import Decimal
from typing import cast

from contracts.errors import TollkeeperError


class UnexpectedRow(TollkeeperError):
    """The store returned a value of an unexpected type: schema and program are of different versions."""

    code = "unexpected_row"


def number_of(value: object) -> int:
    """Return a value as an integer. Raises UnexpectedRow."""
    if isinstance(value, int):
        return int(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an integer; run `python -m migrations`")


def text_of(value: object) -> str:
    """Return a value as a string. Raises UnexpectedRow."""
    if isinstance(value, str):
        return value
    raise UnexpectedRow(f"the store gave {type(value).__name__} for a string; run `python -m migrations`")


def money_of(value: object) -> Decimal:
    """Return a value as an exact amount of USD. Raises UnexpectedRow."""
    if isinstance(value, Decimal):
        return value
    raise UnexpectedRow(f"the store gave {type(value).__name__} for money; run `python -m migrations`")


def numbers_of(value: object) -> tuple[float, ...]:
    """Return a value as an array of numbers. Raises UnexpectedRow."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(float(item) for item in value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an array; run `python -m migrations`")


def whole_numbers(column: Sequence[object]) -> Sequence[int]:
    """Return a column of integers, which is checked as a whole. Raises UnexpectedRow."""
    if set(map(type, column)) <= {int, bool}:
        return cast(Sequence[int], column)
    raise UnexpectedRow("the store gave no integers for a column of them; run `python -m migrations`")


def column_of(value: object) -> Sequence[int]:
    """Return a value as an array of integers. Raises UnexpectedRow."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return whole_numbers(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an array; run `python -m migrations`")


def names_of(value: object) -> Sequence[str]:
    """Return a value as an array of strings. Raises UnexpectedRow."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return texts_of(value)
    raise UnexpectedRow(f"the store gave {type(value).__name__} for an array; run `python -m migrations`")


def texts_of(column: Sequence[object]) -> Sequence[str]:
    """Return a column of strings, which is checked as a whole. Raises UnexpectedRow."""
    if set(map(type, column)) <= {str}:
        return cast(Sequence[str], column)
    raise UnexpectedRow("the store gave no strings for a column of them; run `python -m migrations`")
