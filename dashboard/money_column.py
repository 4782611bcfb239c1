"""Columns of money in tables: USD as pages hand them over, the viewer's currency as they are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard.formats import Formats
from dashboard.table import Table


@dataclass(frozen=True, slots=True)
class Money:
    """A column of USD, shown with the given number of decimals; `is_signed` where gains and losses stand in it, with
    their sign instead of the currency's, which the title then has.
    """

    places: int
    help: str = ""
    is_signed: bool = False


def in_currency(table: Table, columns: Mapping[str, Any], formats: Formats) -> tuple[Table, dict[str, Any]]:
    """Return a table with its columns of money in the viewer's currency, and Streamlit's configuration of all
    columns.
    """
    shown: dict[str, list[Any]] = {name: table[name] for name in table.columns}
    configured: dict[str, Any] = {}
    for name, column in columns.items():
        if not isinstance(column, Money):
            configured[name] = column
            continue
        if name in shown:
            shown[name] = [formats.amount(value) for value in shown[name]]
        before, after = formats.money_signs
        configured[name] = st.column_config.NumberColumn(
            f"{name} {(before + after).strip()}" if column.is_signed else name,
            format=f"%+.{column.places}f" if column.is_signed else f"{before}%.{column.places}f{after}",
            help=f"In {formats.currency}. {column.help}".strip(),
        )
    return Table(shown), configured
