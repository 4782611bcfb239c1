"""Forecasts of spending: as sure as they say, never zero if little is known, and exact about what is spent."""

import random
from datetime import date, timedelta
from decimal import Decimal
from functools import cache

import pytest

from analytics.forecast.history import SpendHistory, history_of
from analytics.forecast.paths import Futures, draw_futures
from analytics.forecast.spend import SpendForecast, forecast_of, usual_days
from contracts.errors import InvalidRequest

TODAY = date(2026, 11, 20)  # a Friday
USD = 10**12
WEEK = (1.0, 1.1, 1.05, 1.0, 0.9, 0.3, 0.25)


def spent(days: int, *, seed: int = 0, noise: float = 0.1) -> list[int]:
    """Create days of spending that end yesterday: a week's shape and some noise."""
    source = random.Random(seed)
    first = TODAY - timedelta(days=days)
    return [
        round(100 * USD * WEEK[(first + timedelta(days=day)).weekday()] * source.lognormvariate(0, noise))
        for day in range(days)
    ]


def history(values: list[int], today: int | None = None, unpriced: int = 0) -> SpendHistory:
    whole = [*values] if today is None else [*values, today]
    return SpendHistory("t", TODAY - timedelta(days=len(values)), tuple(whole), (1,) * len(whole), unpriced)


@cache
def two_months() -> SpendForecast:
    return forecast_of("t", history(spent(70), 20 * USD), TODAY, days=14)


def test_the_week_has_its_shape_and_intervals_hold_the_median() -> None:
    found = two_months()
    assert found.method == "ETS(A,Ad,A), weekly" and found.reason == "" and found.history_days == 70
    assert [day.day for day in found.days] == [TODAY + timedelta(days=number) for number in range(14)]
    for day in found.days:
        assert 0 <= day.low_usd <= day.expected_usd <= day.high_usd
        assert float(day.expected_usd) == pytest.approx(100 * WEEK[day.day.weekday()], rel=0.3)


def test_the_month_is_what_was_spent_exactly_and_what_is_to_come() -> None:
    found, values = two_months(), spent(70)
    before = sum(values[-(TODAY.day - 1) :])
    assert found.month.spent_usd == Decimal(before + 20 * USD) / USD
    assert found.month.expected_usd is not None
    assert found.month.low_usd is not None and found.month.high_usd is not None
    assert found.month.spent_usd < found.month.low_usd < found.month.expected_usd < found.month.high_usd
    left = sum(100 * WEEK[(TODAY + timedelta(days=day)).weekday()] for day in range(11))
    assert float(found.month.expected_usd) == pytest.approx(before / USD + left, rel=0.1)


def test_today_is_at_least_what_it_has_come_to() -> None:
    found = forecast_of("t", history(spent(30), 900 * USD), TODAY, days=1)
    assert found.days[0].low_usd >= 900
    assert found.month.low_usd is not None and found.month.low_usd >= found.month.spent_usd


def test_the_same_history_gives_the_same_forecast() -> None:
    assert forecast_of("t", history(spent(70), 20 * USD), TODAY, days=14) == two_months()


@pytest.mark.parametrize(("days", "method"), [(2, "none"), (3, "pace"), (13, "pace"), (14, "ETS(A,Ad,N)")])
def test_little_history_is_said_to_be_little_and_never_zero(days: int, method: str) -> None:
    found = forecast_of("t", history(spent(days), USD), TODAY)
    assert found.method == method
    if method == "none":
        assert found.month.expected_usd is None and "2 whole days" in found.reason
    else:
        assert found.month.expected_usd is not None and found.month.expected_usd > found.month.spent_usd
    assert (found.month.low_usd is None) is (days < 14)
    assert bool(found.reason) is (days < 14) and bool(found.days) is (days >= 14)


def test_days_of_nothing_are_not_carried_on_as_a_forecast_of_nothing() -> None:
    found = forecast_of("t", history([0] * 30), TODAY)
    assert found.method == "none" and found.month.expected_usd is None and "no priced spending" in found.reason


def test_requests_without_a_price_are_named() -> None:
    assert "7 requests have no price" in forecast_of("t", history(spent(20), unpriced=7), TODAY, days=1).reason


def test_holes_in_a_history_are_days_of_nothing() -> None:
    found = history_of("t", {TODAY - timedelta(days=3): (5, 1), TODAY - timedelta(days=1): (7, 2)}, TODAY)
    assert found.pico_usd == (5, 0, 7) and found.requests == (1, 0, 2)
    assert found.on(TODAY) is None and found.on(TODAY - timedelta(days=4)) is None


@pytest.mark.parametrize(("days", "level"), [(0, 0.8), (93, 0.8), (10, 0.49), (10, 0.995)])
def test_what_cannot_be_asked_is_named(days: int, level: float) -> None:
    with pytest.raises(InvalidRequest):
        forecast_of("t", history(spent(20)), TODAY, days=days, level=level)


def test_a_sum_of_days_errs_less_than_the_days_would_together() -> None:
    futures = draw_futures([value / USD for value in spent(40)], 7)
    assert isinstance(futures, Futures)
    assert futures.total_quantile(0.9) < sum(futures.quantile(0.9))
    assert futures.total_quantile(0.1) > sum(futures.quantile(0.1))
    assert (futures.paths >= 0).all()


def test_a_flagged_day_does_not_drag_the_forecast_and_is_named() -> None:
    """Ten times the usual on one day: the forecast is that of the days without it, but what was spent stays."""
    values = spent(70)
    spiked = [*values]
    spiked[-2] *= 10
    found, usual = (forecast_of("t", history(each, 20 * USD), TODAY, days=14) for each in (spiked, values))
    assert found.ignored_days == (TODAY - timedelta(days=2),) and usual.ignored_days == ()
    more = found.month.spent_usd - usual.month.spent_usd
    assert more == Decimal(spiked[-2] - values[-2]) / USD
    for one, other in zip(found.days, usual.days, strict=True):
        assert float(one.expected_usd) == pytest.approx(float(other.expected_usd), rel=0.05)
    assert found.as_json()["ignored_days"] == ["2026-11-18"]


@pytest.mark.parametrize(("length", "is_ignored"), [(1, True), (3, True), (4, False)])
def test_more_than_three_flagged_days_in_a_row_are_a_new_level(length: int, is_ignored: bool) -> None:
    values = spent(70)
    for place in range(1, length + 1):
        values[-place] *= 5
    whole, ignored = usual_days(history(values), TODAY)
    assert len(ignored) == (length if is_ignored else 0)
    assert (sum(whole) < sum(values)) is is_ignored


def test_a_short_history_has_no_day_that_is_flagged() -> None:
    values = [*spent(20), 10_000 * USD]
    assert usual_days(history(values), TODAY) == (tuple(values), ())
    assert usual_days(history([]), TODAY) == ((), ())
