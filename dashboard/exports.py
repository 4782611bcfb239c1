"""What stands in a chart or table as a file: CSV for spreadsheets, Parquet for programs; a PNG the browser makes."""

import io
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import pandas as pd
import streamlit as st

FrameSource: TypeAlias = pd.DataFrame | Callable[[], pd.DataFrame]

# Text that a spreadsheet would run as a formula when the file is opened (OWASP, "CSV Injection").
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def export_menu(name: str, data: FrameSource) -> None:
    """Draw the menu of exports. The file is made when it is asked for, of what stands on the page."""
    menu = st.popover(
        "",
        icon=":material/download:",
        type="tertiary",
        help="Export these numbers",
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


def as_csv(frame: pd.DataFrame) -> bytes:
    """Write a frame as CSV in UTF-8. Times have their offset; text that looks like a formula is quoted by an
    apostrophe, which spreadsheets take as "this is text".
    """
    safe = frame.copy()
    for name in safe.columns:
        if safe[name].dtype.kind in "OUT" or str(safe[name].dtype) in ("str", "string", "category"):
            safe[name] = [_harmless(value) for value in safe[name]]
    return bytes(safe.to_csv(index=False).encode())


def as_parquet(frame: pd.DataFrame) -> bytes:
    """Write a frame as Parquet, its types kept."""
    out = io.BytesIO()
    frame.to_parquet(out, index=False)
    return out.getvalue()


def image_config(name: str) -> dict[str, object]:
    """Give Plotly's settings: no bar of tools but the button that makes a PNG, in the browser, of the chart."""
    return {
        "displaylogo": False,
        "displayModeBar": "hover",
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": name, "scale": 2},
    }


def _written(write: Callable[[pd.DataFrame], bytes], data: FrameSource) -> bytes:
    return write(data() if callable(data) else data)


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
