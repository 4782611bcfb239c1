"""What an address asks for, and what it is told when that makes no sense."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from contracts.errors import InvalidRequest
from dashboard.filters import Filters, read_filters

NOW = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def test_an_empty_address_asks_for_the_last_hour_of_everyone() -> None:
    filters = read_filters({})
    assert filters == Filters()
    scope = filters.scope(NOW)
    assert (scope.start, scope.end, scope.tenant, scope.model) == (NOW - timedelta(hours=1), NOW, None, None)


def test_an_address_carries_every_filter() -> None:
    filters = read_filters({"range": "7d", "tenant": "acme", "model": "llama", "by": "model"})
    assert filters == Filters("7d", tenant="acme", model="llama", by="model")


def test_dates_in_an_address_are_utc_unless_they_say_otherwise() -> None:
    filters = read_filters({"from": "2026-11-01T00:00", "to": "2026-11-02T01:00+01:00"})
    scope = filters.scope(NOW)
    assert scope.start == datetime(2026, 11, 1, tzinfo=UTC)
    assert scope.end == datetime(2026, 11, 2, tzinfo=UTC)
    assert not filters.is_live


def test_an_end_in_the_future_means_until_now() -> None:
    assert read_filters({"from": "2026-11-01T00:00Z", "to": "2027-01-01T00:00Z"}).scope(NOW).end == NOW


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ({"range": "9y"}, "no range is called '9y'; choose one of 15m, 1h"),
        ({"by": "colour"}, "cannot group by 'colour'"),
        (
            {"from": "yesterday", "to": "2026-11-02"},
            "'yesterday' is not a valid date and time; use the form 2026-11-01T00:00Z",
        ),
        ({"from": "2026-11-01"}, "needs a start and an end"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "before it begins"),
        ({"from": "2026-11-03", "to": "2026-11-04"}, "starts in the future"),
        ({"from": "2024-11-03", "to": "2026-11-01"}, "choose at most 400 days"),
        (
            {"from": "0001-01-01T00:00", "to": "2026-11-01"},
            "'0001-01-01T00:00' is outside the supported range of dates",
        ),
        ({"from": "1970-01-01T00:00+01:00", "to": "2026-11-01"}, "is outside the supported range of dates"),
        ({"from": "2026-11-01", "to": "2106-01-01"}, "'2106-01-01' is outside the supported range of dates"),
        ({"from": "1970-01-01", "to": "2105-01-01"}, "choose at most 400 days"),
    ],
)
def test_a_senseless_address_is_answered_with_a_sentence(address: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read_filters(address).scope(NOW)


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61])
def test_a_month_has_a_range_from_its_first_moment(seconds: int) -> None:
    first = datetime(2026, 10, 31, 23, 0, tzinfo=UTC)  # midnight in Berlin
    now = first + timedelta(seconds=seconds)
    scope = Filters("month").scope(now, ZoneInfo("Europe/Berlin"))
    assert (scope.start, scope.end) == (first, now if seconds else first + timedelta(minutes=1))
