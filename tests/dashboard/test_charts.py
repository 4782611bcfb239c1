"""Colours that stay, legends that cannot be written into, bars that say when they are not whole."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.cost.drill import CostPlace
from analytics.series import Point, Series
from dashboard import charts, formats
from dashboard.filters import Filters
from dashboard.plot import Plot
from dashboard.theme import GROUP_COLORS, GROUP_HUES, REST_COLOR
from dashboard.views import costs_breakdown, costs_standard, costs_units, overview, overview_read

START = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def two_minutes(**tenants: tuple[Point, ...]) -> Series:
    steps = (START, START + timedelta(minutes=1))
    groups: dict[str | None, tuple[Point, ...]] = dict(tenants.items())
    return Series("tenant", timedelta(minutes=1), steps, groups, frozenset({1}))


@given(st.sets(st.text(min_size=1), max_size=len(GROUP_COLORS)))
def test_no_two_names_share_a_colour_while_there_are_enough(names: set[str]) -> None:
    assert len(set(charts.assign_colors(names).values())) == len(names)


@given(st.sets(st.text(min_size=1), max_size=len(set(GROUP_HUES))))
def test_few_names_have_colours_of_different_hues(names: set[str]) -> None:
    taken = [GROUP_HUES[GROUP_COLORS.index(color)] for color in charts.assign_colors(names).values()]
    assert len(set(taken)) == len(names)


def test_names_of_one_chart_take_the_colours_in_order() -> None:
    found = charts.colors_in_order(["GPU-1", "GPU-0", "GPU-1"])
    assert found == {"GPU-0": GROUP_COLORS[0], "GPU-1": GROUP_COLORS[1]}
    many = charts.colors_in_order(f"GPU-{number:02}" for number in range(len(GROUP_COLORS) + 1))
    assert many[f"GPU-{len(GROUP_COLORS)}"] == GROUP_COLORS[0]


@given(st.lists(st.text(min_size=1), unique=True, max_size=40), st.integers(0, 40))
def test_names_that_come_later_change_no_colour(names: list[str], known: int) -> None:
    before = charts.assign_colors(names[:known])
    after = charts.assign_colors(names)
    assert {name: after[name] for name in before} == before
    assert list(after) == names


def test_a_bar_that_is_still_filling_is_paler() -> None:
    figure = charts.bars(two_minutes(acme=(Point(requests=3), Point(requests=1))), charts.REQUESTS, {})
    assert figure.data[0].y == (3, 1)
    assert figure.data[0].marker.opacity[0] == 1.0
    assert figure.data[0].marker.opacity[1] < 1.0


def test_pointing_at_a_bar_shows_exact_cost() -> None:
    series = two_minutes(acme=(Point(cost_usd=Decimal("0.00027")), Point()))
    figure = charts.bars(series, charts.COST, {})
    assert figure.data[0].customdata[0] == "$0.00027"


def test_bars_stand_at_the_viewer_s_clock() -> None:
    series = two_minutes(acme=(Point(requests=3), Point(requests=1)))
    figure = charts.bars(series, charts.REQUESTS, {}, ZoneInfo("Asia/Kolkata"))
    assert figure.data[0].x[0] == datetime(2026, 11, 2, 17, 30)


def test_all_charts_of_costs_and_of_the_overview_stand_at_the_viewer_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    for view in (overview, costs_breakdown, costs_units):
        monkeypatch.setattr(view, "show_chart", lambda _, figure, **__: figures.append(figure))
    monkeypatch.setattr(overview, "segmented", lambda *_, **__: None)
    over_time = two_minutes(acme=(Point(requests=3), Point(requests=1)))
    visit: Any = SimpleNamespace(
        read=lambda *_: over_time,
        scope=None,
        filters=Filters(),
        colors=lambda _: {},
        formats=formats.Formats(zone=ZoneInfo("Asia/Kolkata")),
    )
    answer: Any = SimpleNamespace(level="tenant", total=SimpleNamespace(unpriced_requests=0, unknown_usage_requests=0))
    overview._charts(visit, answer, over_time, {})
    costs_breakdown._over_time(visit, CostPlace(), "tenant")
    costs_units._over_time(visit, CostPlace(), answer)
    assert [figure.data[0].x[0] for figure in figures] == [datetime(2026, 11, 2, 17, 30)] * 5


def test_the_rest_is_grey_and_last() -> None:
    steps = (START,)
    groups = {None: (Point(requests=9),), "b": (Point(requests=1),), "a": (Point(requests=2),)}
    series = Series("tenant", timedelta(minutes=1), steps, groups, frozenset())
    assert charts.ordered_groups(series) == ["a", "b", None]
    figure = charts.bars(series, charts.REQUESTS, charts.assign_colors(["a", "b"]))
    assert figure.data[2].name == "all others" and figure.data[2].marker.color == REST_COLOR


def test_a_name_cannot_write_html_into_the_legend() -> None:
    html = charts.legend(two_minutes(**{"<script>alert(1)</script>": (Point(), Point())}), {})
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_steps_are_named_in_words() -> None:
    names = {60: "minute", 300: "5 minutes", 3_600: "hour", 10_800: "3 hours", 86_400: "day", 604_800: "week"}
    assert {seconds: charts.step_name(timedelta(seconds=seconds)) for seconds in names} == names


@pytest.mark.parametrize(
    ("lowest", "highest", "texts"),
    [
        (-0.5, 1.0, ["-$0.5", "$0.0", "$0.5", "$1.0"]),
        (-1200.0, 300.0, ["-$1,500", "-$1,000", "-$500", "$0", "$500"]),
        (-0.003, 0.0, ["-$0.003", "-$0.002", "-$0.001", "$0.000"]),
    ],
)
def test_an_axis_of_money_below_zero_writes_the_sign_before_the_currency(
    lowest: float, highest: float, texts: list[str]
) -> None:
    figure = charts.money_axis(
        charts.style(Plot().add_bar(x=[1], y=[lowest]), prefix="$"), lowest, highest, formats.Formats()
    )
    axis = figure.figure(is_checked=True).layout.yaxis
    assert list(axis.ticktext) == texts
    assert axis.tickprefix == ""
    assert axis.tickvals[0] <= lowest and axis.tickvals[-1] >= highest


def test_an_axis_of_money_above_zero_is_left_to_plotly() -> None:
    figure = charts.money_axis(charts.style(Plot().add_bar(x=[1], y=[2]), prefix="$"), 0.0, 2.0, formats.Formats())
    axis = figure.figure(is_checked=True).layout.yaxis
    assert axis.ticktext is None and axis.tickprefix == "$"


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (None, "some cost is unknown"),
        (Decimal(0), "budgets were charged the exact cost"),
        (Decimal("0.5"), "not charged to any budget"),
        (Decimal("-0.5"), "charged above cost"),
    ],
)
def test_a_difference_of_cost_and_charge_is_named_by_its_sign(difference: Decimal | None, words: str) -> None:
    assert costs_standard._difference_words(difference) == words


@pytest.mark.parametrize(("p50_ns", "is_explained"), [(0.0, True), (10_000.0, False), (12e6, False)])
def test_a_median_of_no_time_between_tokens_is_explained(p50_ns: float, is_explained: bool) -> None:
    assert bool(overview_read.together(p50_ns)) is is_explained
    assert (formats.duration(p50_ns) == "0 µs") is is_explained


def test_a_chart_of_costs_that_corrections_take_below_zero_has_such_an_axis() -> None:
    point, credit = Point(requests=1, cost_usd=Decimal("1.2")), Point(cost_usd=Decimal("-1.5"))
    series = two_minutes(acme=(point, credit))
    for measure, texts in (
        (charts.cost_in(formats.Formats()), ["-$2", "-$1", "$0", "$1", "$2"]),
        (charts.REQUESTS, None),
    ):
        axis = charts.bars(series, measure, {}).figure(is_checked=True).layout.yaxis
        assert axis.ticktext == (None if texts is None else tuple(texts))
