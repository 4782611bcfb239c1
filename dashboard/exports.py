"""Export charts and tables: CSV, Parquet, and PNG from the browser."""

import io
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import streamlit as st

from contracts.pricing.spreadsheets import harmless_cell
from dashboard.table import Table

FrameSource: TypeAlias = Table | Callable[[], Table]


def export_menu(name: str, data: FrameSource) -> None:
    """Draw the export menu. Files are made on demand, from the data on the page."""
    menu = st.popover(
        "",
        icon=":material/download:",
        type="tertiary",
        help="Export this data",
        key=f"export_{name}",
        on_change="rerun",  # while closed, the menu computes no data
    )
    if not menu.open:
        return
    with menu:
        for label, ending, mime, write in (
            ("CSV", "csv", "text/csv", as_csv),
            ("Parquet", "parquet", "application/vnd.apache.parquet", as_parquet),
        ):
            st.download_button(
                label,
                partial(_written, write, data),
                file_name=f"{name}.{ending}",
                mime=mime,
                key=f"export_{name}_{ending}",
                on_click="ignore",
                width="stretch",
            )


def as_csv(data: Table) -> bytes:
    """Return a table as CSV in UTF-8. Times have their offset; text that looks like a formula gets a leading
    apostrophe, which makes spreadsheets treat it as text.
    """
    table = Table.of(data)
    safe = Table({str(harmless_cell(name)): map(harmless_cell, table[name]) for name in table.columns})
    return safe.as_csv().encode()


def as_parquet(data: Table) -> bytes:
    """Return a table as a Parquet file, with its column types."""
    import pyarrow.parquet as pq  # imported here: it loads slowly, and few viewers export

    out = io.BytesIO()
    pq.write_table(Table.of(data).as_arrow(), out)
    return out.getvalue()


def image_config(name: str) -> dict[str, object]:
    """Return Plotly's settings: the toolbar has only the button that saves the chart as PNG, in the browser."""
    return {
        "displaylogo": False,
        "displayModeBar": "hover",
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": name, "scale": 2},
    }


def _written(write: Callable[[Table], bytes], data: FrameSource) -> bytes:
    return write(data() if callable(data) else data)
