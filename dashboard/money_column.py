"""Money columns of tables: pages give USD, viewers see their own currency."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from dashboard.formats import Formats
from dashboard.table import Table

# Column formats in which the browser writes the minus before the currency sign.
_BY_CURRENCY: Final[Mapping[str, str]] = {"USD": "dollar", "EUR": "euro", "JPY": "yen"}


@dataclass(frozen=True, slots=True)
class Money:
    """A column of USD amounts with a number of decimals; `is_signed` if amounts may be below 0 (shown as -$0.50).

    If no column format exists for the viewer's currency, the column title names the currency.
    """

    places: int
    help: str = ""
    is_signed: bool = False


def in_currency(table: Table, columns: Mapping[str, Any], formats: Formats) -> tuple[Table, dict[str, Any]]:
    """Convert a table's money columns to the viewer's currency; return it and Streamlit's column configuration."""
    shown: dict[str, list[Any]] = {name: table[name] for name in table.columns}
    configured: dict[str, Any] = {}
    for name, column in columns.items():
        if not isinstance(column, Money):
            configured[name] = column
            continue
        if name in shown:
            shown[name] = [formats.amount(value) for value in shown[name]]
        before, after = formats.money_signs
        has_sign = column.is_signed or any(value is not None and value < 0 for value in shown.get(name, ()))
        if has_sign and formats.currency in _BY_CURRENCY:
            if name in shown:  # a column with a step cuts further decimals off instead of rounding
                shown[name] = [None if value is None else round(value, column.places) for value in shown[name]]
            configured[name] = st.column_config.NumberColumn(
                name,
                format=_BY_CURRENCY[formats.currency],
                step=10.0**-column.places,
                help=f"In {formats.currency}. {column.help}".strip(),
            )
            continue
        plain = f"%+.{column.places}f" if column.is_signed else f"%.{column.places}f"
        configured[name] = st.column_config.NumberColumn(
            f"{name} {(before + after).strip()}" if has_sign else name,
            format=plain if has_sign else f"{before}%.{column.places}f{after}",
            help=f"In {formats.currency}. {column.help}".strip(),
        )
    return Table(shown), configured
