"""Charts are Plotly's figures: built by it, in the look that is registered with it, and right by its own schema."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import plotly.graph_objects as go
import plotly.io
import pytest

from analytics.latency.histogram import BOUNDS_TENTHS_MS, Histogram
from analytics.routing.board import RoutingBoard
from analytics.routing.tries import Tries
from analytics.scope import Scope
from analytics.series import Point, Series
from dashboard import charts
from dashboard.formats import Formats
from dashboard.gateway_state import Change, GatewayState
from dashboard.plot import Plot
from dashboard.theme import GROUP_COLORS
from dashboard.views.latency_charts import heat_map, prompt_ranges
from dashboard.views.routing_charts import breaker_history, failed_tries, reasons
from dashboard.views.time_charts import Line, areas, lines, stacked_bars

START = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
STEPS = [START, START + timedelta(minutes=1)]
UTC_ZONE = ZoneInfo("UTC")
LINE = Line("acme", [1.0, None], "#2f7ed8", ["1", "—"])


def histogram() -> Histogram:
    return Histogram({BOUNDS_TENTHS_MS[3]: 2, BOUNDS_TENTHS_MS[5]: 1})


def opened() -> GatewayState:
    """A breaker that opened and closed, and one that is open still."""
    changes = (
        Change(START, "chat/a", True, "5 failures in a row"),
        Change(START + timedelta(minutes=3), "chat/a", False, ""),
        Change(START + timedelta(minutes=4), "chat/b", True, "half of 40 failed"),
    )
    return GatewayState(changes=changes)


def line_at_zero() -> Plot:
    return Plot().add_scatter(x=[1], y=[2]).add_hline(y=0, line={"color": "#d0505c", "width": 1, "dash": "dot"})


def line_upright() -> Plot:
    came = {"text": "came: 3 ms", "yanchor": "bottom"}
    return Plot().add_bar(x=[1]).add_vline(x=3, line={"width": 2}, annotation=came, annotation_position="top")


PLOTS = {
    "bars": lambda: charts.bars(
        Series("tenant", timedelta(minutes=1), tuple(STEPS), {"acme": (Point(3), Point(1))}, frozenset({1})),
        charts.COST,
        {},
    ),
    "lines": lambda: lines(STEPS, [LINE], UTC_ZONE, suffix=" ms"),
    "areas": lambda: areas(STEPS, [LINE], UTC_ZONE),
    "stacked": lambda: stacked_bars(STEPS, [LINE, LINE], UTC_ZONE),
    "heat": lambda: heat_map(STEPS, [histogram(), histogram()], Formats()),
    "ranges": lambda: prompt_ranges({"below 1,024": histogram()}, Formats()),
    "reasons": lambda: reasons({"retry": 2}),
    "breakers": lambda: breaker_history(opened(), START, START + timedelta(minutes=6), UTC_ZONE),
    "at zero": line_at_zero,
    "upright": line_upright,
}


@pytest.mark.parametrize("name", PLOTS)
def test_what_the_browser_is_sent_is_a_figure_that_plotly_knows(name: str) -> None:
    sent = PLOTS[name]().as_json()
    checked = go.Figure(json.loads(sent))
    assert checked.data and sent == str(plotly.io.to_json(PLOTS[name]().figure(), validate=False))


def test_a_figure_has_the_look_that_is_registered_with_plotly() -> None:
    figure = Plot().add_bar(y=[1]).figure(is_checked=True)
    assert isinstance(figure, go.Figure)
    assert figure.layout.template == plotly.io.templates["tollkeeper"]
    sent = json.loads(Plot().add_bar(y=[1]).as_json())
    assert tuple(sent["layout"]["template"]["layout"]["colorway"]) == GROUP_COLORS
    assert sent["layout"]["template"]["data"]["bar"][0]["marker"]["line"]["width"] == 0


def test_a_property_that_plotly_does_not_know_is_told_to_tests() -> None:
    with pytest.raises(ValueError, match="colour"):
        assert Plot().add_bar(colour="red").data


def test_changes_of_the_layout_are_merged() -> None:
    plot = Plot().update_layout(margin={"l": 0, "t": 6}).update_layout(margin={"t": 28}, height=300)
    assert plot.figure().layout.margin.to_plotly_json() == {"l": 0, "t": 28} and plot.height == 300


def test_a_breaker_that_is_open_still_lasts_until_the_range_ends() -> None:
    bars: dict[str, Any] = {bar.y[0]: bar for bar in PLOTS["breakers"]().data}
    assert bars["chat/a"].x[0] == 180_000, "closed after three minutes, in milliseconds"
    assert bars["chat/b"].x[0] == 120_000
    assert "half of 40 failed" in bars["chat/b"].customdata[0]


def test_amounts_are_numbers_to_the_browser() -> None:
    plot = Plot().add_waterfall(x=["Before"], y=[float(Decimal("0.1"))], measure=["absolute"])
    assert json.loads(plot.as_json())["data"][0]["y"] == [0.1]


@pytest.mark.parametrize(("count", "step"), [(1, 1), (2, 1), (3, None), (400, None)])
def test_few_tries_are_counted_one_by_one(count: int, step: int | None) -> None:
    """Of two targets together: up to four a step there is a tick at each, and none between that reads as one."""
    failed = [
        Tries(START, "chat", target, "retry", "error", "timeout", number, Decimal(0))
        for target, number in (("a", count), ("b", 2))
    ]
    board = RoutingBoard(Scope(START, START + timedelta(hours=1)), (), tuple(failed), (), (), ())
    drawn = failed_tries(board, UTC_ZONE).figure(is_checked=True)
    assert (drawn.layout.yaxis.dtick, drawn.layout.yaxis.tickformat) == (step, ",d")
