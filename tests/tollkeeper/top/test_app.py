"""The live view, run without a terminal."""

from collections.abc import Callable
from decimal import Decimal

from textual.widgets import DataTable, Static

from tollkeeper.top.app import TopApp
from tollkeeper.top.page import MetricsPage
from tollkeeper.top.spend import TenantSpend
from tollkeeper.top.watch import MetricsUnreadable

_SPEND = (TenantSpend("acme", 3, 1_200, Decimal("0.5"), Decimal("2"), 0),)
_LONG_SECONDS = 600.0  # no reading but those the test asks for


def growing() -> Callable[[], MetricsPage]:
    readings = iter(range(1, 100))

    def read() -> MetricsPage:
        at = next(readings)
        return MetricsPage.read([f'tollkeeper_requests_total{{model="m[b]",outcome="ok"}} {at * 5}'], float(at))

    return read


def said(app: TopApp) -> str:
    problem = app.query_one("#problem", Static)
    return str(problem.render()) if problem.display else ""


async def test_the_second_reading_shows_rates_and_who_spends() -> None:
    app = TopApp(growing(), lambda: _SPEND, _LONG_SECONDS)
    async with app.run_test(size=(160, 50)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        tiles = [str(tile.render()) for tile in app.query(".tile").results(Static)]
        assert tiles[0] == "5.0\nrequests/s"
        assert [str(cell) for cell in app.query_one("#table-0", DataTable).get_row_at(0)][:2] == ["m[b]", "5.0"]
        shown = [str(cell) for cell in app.query_one("#table-1", DataTable).get_row_at(0)]
        assert shown[-4:] == ["2.00", "0", "0", "0"]
        assert not app.query_one("#table-3", DataTable).display


async def test_a_gateway_that_is_away_is_said_and_shown_again_when_it_answers() -> None:
    ways = iter(["away", "there", "there"])
    there = growing()

    def read() -> MetricsPage:
        if next(ways) == "away":
            raise MetricsUnreadable("nothing answers at http://127.0.0.1:1/metrics")
        return there()

    app = TopApp(read, lambda: (), _LONG_SECONDS)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        assert "nothing answers" in said(app)
        for _ in range(2):
            await pilot.press("r")
            await app.workers.wait_for_complete()
        await pilot.pause()
        assert said(app) == ""
        assert len(app.query(".tile")) == 11


async def test_a_store_that_is_away_leaves_the_rest_on_screen() -> None:
    def spend() -> tuple[TenantSpend, ...]:
        raise MetricsUnreadable("the store does not answer")

    app = TopApp(growing(), spend, _LONG_SECONDS)
    async with app.run_test() as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("r")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "the store does not answer" in str(app.query_one("#title-1", Static).render())
        assert app.query_one("#table-0", DataTable).row_count == 1
