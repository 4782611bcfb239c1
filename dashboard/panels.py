"""Building blocks of pages: key figures, charts and tables, with title, unit, help and exports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import streamlit as st

from contracts.errors import TollkeeperError
from dashboard.exports import FrameSource, export_menu, image_config
from dashboard.formats import UNKNOWN, Formats
from dashboard.money_column import in_currency
from dashboard.plot import Plot
from dashboard.plot_element import draw_plot
from dashboard.states import escaped, show_failure_in_panel
from dashboard.table import Table

Tone = Literal["good", "warn", "bad"]
_TONES: Final[dict[Tone | None, str]] = {None: "off", "good": "green", "warn": "orange", "bad": "red"}
_VISIBLE_ROWS: Final = 12
_SCROLLED_PIXELS: Final = 400
_LINE_PIXELS: Final = 20
_CELL_PIXELS: Final = 18  # from 4 rem (56 pixels) on, Streamlit wraps text


@dataclass(frozen=True, slots=True)
class Figure:
    """One key figure: its formatted value, a text beside it, and how it is computed (`help`).

    `tone` is the colour of the text beside it.
    """

    label: str
    value: str
    beside: str = ""
    help: str = ""
    tone: Tone | None = None


def show_figures(figures: Sequence[Figure]) -> None:
    """Draw key figures in a row, equally wide; in several rows if the window is narrow (`frame.STYLE`)."""
    if not figures:
        return
    with st.container(key=figures_key(figures)):
        for column, figure in zip(st.columns(len(figures), gap="small"), figures, strict=True):
            column.metric(
                figure.label,
                figure.value,
                figure.beside or " ",
                delta_color=_TONES[figure.tone],  # type: ignore[arg-type]  # its names are Streamlit's
                delta_arrow="off",
                border=True,
                help=figure.help or None,
            )


def figures_key(figures: Sequence[Figure]) -> str:
    """Return the element key of a row of figures, made of its labels; the CSS matches the common prefix of all."""
    return "figures_" + "_".join("".join(filter(str.isalnum, figure.label)) for figure in figures)


@contextmanager
def panel(title: str, *, unit: str = "", help: str = "") -> Iterator[None]:
    """Draw a card with a title. An error inside is shown in this card; the rest of the page is still drawn."""
    with st.container(border=True):
        _heading(title, unit, help)
        with contained():
            yield


@contextmanager
def contained() -> Iterator[None]:
    """Show an error of the `with` block in its place; the rest of the page is still drawn."""
    try:
        yield
    except TollkeeperError as error:
        show_failure_in_panel(error)


def show_chart(
    title: str,
    figure: Plot,
    *,
    key: str,
    unit: str = "",
    help: str = "",
    data: FrameSource | None = None,
    alt: str = "",
) -> None:
    """Draw a card with a chart: unit beside the title, export of its data as CSV and Parquet, of its image as PNG.

    `data` is the chart's data, or a function that returns it on demand.
    """
    with st.container(border=True):
        _heading(title, unit, help, None if data is None else (key, data))
        draw_plot(figure, key=key, config=image_config(key), alt=alt or _spoken(title, unit))


def show_table(
    title: str,
    frame: Table,
    *,
    key: str,
    columns: Mapping[str, Any] | None = None,
    help: str = "",
    data: FrameSource | None = None,
    on_select: Callable[[], None] | Literal["ignore", "rerun"] = "ignore",
    selection_mode: Literal["single-row", "multi-row"] = "single-row",
    empty: str = "No data.",
    formats: Formats | None = None,
    text_lines: int = 1,
) -> Any:
    """Draw a card with a table and its exports (of `data`, if these should have more than is shown).

    Returns Streamlit's selection unless `on_select` is "ignore". Missing cells are dashes. `Money` columns are in the
    currency of `formats` (default USD); in exports money is in USD. Text longer than a cell continues on the next of
    `text_lines` lines.
    """
    with st.container(border=True):
        _heading(title, "", help, (key, frame if data is None else data))
        if Table.of(frame).empty:
            st.caption(empty)
            return None
        table, configured = in_currency(Table.of(frame), columns or {}, formats or Formats())
        return st.dataframe(
            table.as_arrow(),
            key=key,
            hide_index=True,
            lazy=False,  # else Streamlit loads pandas (50 MB) to check the type
            height="content" if len(table) <= _VISIBLE_ROWS else _SCROLLED_PIXELS,
            row_height=None if text_lines == 1 else _LINE_PIXELS * text_lines + _CELL_PIXELS,
            placeholder=UNKNOWN,
            column_config=configured,
            alt=title,
            on_select=on_select,
            selection_mode=selection_mode,
        )


def note(sentence: str) -> None:
    """Draw one grey sentence."""
    st.caption(sentence)


def _heading(title: str, unit: str, help: str, export: tuple[str, FrameSource] | None = None) -> None:
    words = f"**{escaped(title)}**" + (f" :gray[{escaped(unit)}]" if unit else "")
    if export is None:
        st.markdown(words, help=help or None)
        return
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", wrap=False):
        st.markdown(words, help=help or None, width="content")
        export_menu(*export)


def _spoken(title: str, unit: str) -> str:
    return f"{title}, in {unit}" if unit else title
