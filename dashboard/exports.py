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
    """Draw the menu of exports. The file is made when it is asked for, of what stands on the page."""
    menu = st.popover(
        "",
        icon=":material/download:",
        type="tertiary",
        help="Export this data",
        key=f"export_{name}",
        on_change="rerun",  # closed, it costs one element and no data
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
    """Write a table as CSV in UTF-8. Times have their offset; text that looks like a formula is quoted by an
    apostrophe, which spreadsheets take as "this is text".
    """
    table = Table.of(data)
    safe = Table({str(harmless_cell(name)): map(harmless_cell, table[name]) for name in table.columns})
    return safe.as_csv().encode()


def as_parquet(data: Table) -> bytes:
    """Write a table as Parquet, its types kept."""
    import pyarrow.parquet as pq  # here: few viewers export, and it takes a while to load

    out = io.BytesIO()
    pq.write_table(Table.of(data).as_arrow(), out)
    return out.getvalue()


def image_config(name: str) -> dict[str, object]:
    """Return Plotly's settings: no bar of tools but the button that makes a PNG, in the browser, of the chart."""
    return {
        "displaylogo": False,
        "displayModeBar": "hover",
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": name, "scale": 2},
    }


def _written(write: Callable[[Table], bytes], data: FrameSource) -> bytes:
    return write(data() if callable(data) else data)
