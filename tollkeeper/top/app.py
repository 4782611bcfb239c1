"""The live terminal view: key figures, a sparkline of tokens per second, and tables, refreshed every few seconds."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Header, Sparkline, Static

from contracts.errors import TollkeeperError
from tollkeeper.top.page import MetricsPage, PagePair
from tollkeeper.top.picture import Picture, picture
from tollkeeper.top.spend import SpendReader, TenantSpend
from tollkeeper.top.tables import TextTable, tables, tiles

_SHOWN_READINGS: Final = 120
_SPEND_SECONDS: Final = 10.0


class TopApp(App[None]):
    """The Textual app. `read` returns the gateway's metrics, `spend` the store's; both may raise TollkeeperError."""

    TITLE = "tollkeeper top"
    CSS = """
    #tiles { height: auto; }
    .tile { width: 1fr; height: 3; padding: 0 1; content-align: center middle; text-align: center; }
    #tokens { height: 3; margin: 0 1; }
    #problem { height: auto; padding: 0 1; color: $error; display: none; }
    .title { padding: 1 1 0 1; text-style: bold; }
    DataTable { height: auto; margin: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Quit"), ("p", "pause", "Pause"), ("r", "refresh", "Now")]

    def __init__(self, read: Callable[[], MetricsPage], spend: SpendReader, interval_seconds: float) -> None:
        super().__init__()
        self._read = read
        self._spend = spend
        self._interval_seconds = interval_seconds
        self._earlier: MetricsPage | None = None
        self._found: Picture | None = None
        self._spent: tuple[TenantSpend, ...] | None = None
        self._spend_missing = "the store has not answered yet"
        self._token_rates: deque[float] = deque(maxlen=_SHOWN_READINGS)
        self._paused = False

    def compose(self) -> ComposeResult:
        """Yield the widgets, with all figures unknown."""
        yield Header()
        yield Static(id="problem")
        nothing = picture(PagePair(MetricsPage(0.0, {}), MetricsPage(1.0, {})))
        with Horizontal(id="tiles"):
            for _ in tiles(nothing.traffic):
                yield Static(classes="tile")
        yield Sparkline([0.0], id="tokens")
        with VerticalScroll(id="tables"):
            for number, table in enumerate(tables(nothing, None)):
                yield Static(id=f"title-{number}", classes="title")
                grid: DataTable[Text] = DataTable(id=f"table-{number}", cursor_type="none", zebra_stripes=True)
                for at, column in enumerate(table.columns):
                    grid.add_column(_cell(column, is_number=at >= table.labels))
                yield grid
        yield Footer()

    def on_mount(self) -> None:
        """Start the refresh timer."""
        self.sub_title = "output tokens a second, latest on the right"
        self.set_interval(self._interval_seconds, self._tick)
        self.set_interval(_SPEND_SECONDS, self._tick_spend)
        self._look()
        self._ask_spend()

    def action_pause(self) -> None:
        """Pause or continue refreshing."""
        self._paused = not self._paused
        self.sub_title = "paused; p continues" if self._paused else "output tokens a second, latest on the right"

    def action_refresh(self) -> None:
        """Refresh now."""
        self._look()
        self._ask_spend()

    def _tick(self) -> None:
        if not self._paused:
            self._look()

    def _tick_spend(self) -> None:
        if not self._paused:
            self._ask_spend()

    @work(exclusive=True, group="metrics")
    async def _look(self) -> None:
        try:
            page = await asyncio.to_thread(self._read)
        except TollkeeperError as error:
            self._show_problem(error.message)
        else:
            self._show_page(page)

    @work(exclusive=True, group="spend")
    async def _ask_spend(self) -> None:
        try:
            self._spent = await asyncio.to_thread(self._spend)
        except TollkeeperError as error:
            self._spent, self._spend_missing = None, error.message
        else:
            self._spend_missing = ""
        self._draw()

    def _show_problem(self, message: str) -> None:
        problem = self.query_one("#problem", Static)
        problem.update(Text(f"{message}; retrying every {self._interval_seconds:g} s"))
        problem.display = True

    def _show_page(self, page: MetricsPage) -> None:
        self.query_one("#problem").display = False
        earlier, self._earlier = self._earlier, page
        if earlier is not None and page.at_seconds > earlier.at_seconds:
            self._found = picture(PagePair(earlier, page))
            self._token_rates.append(self._found.traffic.output_tokens_per_s)
            self._draw()

    def _draw(self) -> None:
        if self._found is None:
            return
        for tile, (name, value) in zip(self.query(".tile").results(Static), tiles(self._found.traffic), strict=True):
            tile.update(Text.assemble((value, "bold"), "\n", (name, "dim")))
        self.query_one("#tokens", Sparkline).data = list(self._token_rates)
        for number, table in enumerate(tables(self._found, self._spent, self._spend_missing)):
            self._draw_table(number, table)

    def _draw_table(self, number: int, table: TextTable) -> None:
        title = table.title if table.rows else f"{table.title}: {table.empty}"
        self.query_one(f"#title-{number}", Static).update(Text(title))
        grid = self.query_one(f"#table-{number}", DataTable)
        grid.display = bool(table.rows)
        grid.clear()
        for row in table.rows:
            grid.add_row(*(_cell(value, is_number=at >= table.labels) for at, value in enumerate(row)))


def _cell(value: str, *, is_number: bool) -> Text:
    # Text, not markup: a model's name may contain square brackets.
    return Text(value, justify="right" if is_number else "left")
