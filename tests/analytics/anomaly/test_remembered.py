"""A look at the rules does not read yesterday again: it is over, but for records that arrive late."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from analytics.anomaly import remembered
from analytics.anomaly.remembered import RememberedAnomalies
from backends.store.client import StoreClient
from contracts.errors import StoreUnavailable

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def test_a_day_is_read_once_and_again_after_five_minutes_or_at_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[datetime] = []

    def answer(store: StoreClient, now: datetime) -> tuple[str, ...]:
        read.append(now)
        return (f"read {len(read)}",)

    monkeypatch.setattr(remembered, "spend_anomalies", answer)
    monkeypatch.setattr(remembered, "anomalies_of_today", lambda store, now: ())
    ask: Callable[..., Any] = RememberedAnomalies()
    store = cast(StoreClient, None)
    moments = [timedelta(0), timedelta(seconds=299), timedelta(seconds=300), timedelta(minutes=-1)]
    assert [ask(store, NOON + after)[0] for after in moments] == ["read 1", "read 1", "read 2", "read 3"]
    midnight = datetime(2026, 11, 3, tzinfo=UTC)
    ask(store, midnight - timedelta(seconds=1))
    assert ask(store, midnight)[0] == "read 5", "another day is yesterday now"


def test_a_store_that_is_away_is_told_and_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: StoreClient, now: datetime) -> tuple[str, ...]:
        raise StoreUnavailable("away")

    ask: Callable[..., Any] = RememberedAnomalies()
    store = cast(StoreClient, None)
    monkeypatch.setattr(remembered, "spend_anomalies", fail)
    with pytest.raises(StoreUnavailable):
        ask(store, NOON)
    monkeypatch.setattr(remembered, "spend_anomalies", lambda store, now: ("found",))
    monkeypatch.setattr(remembered, "anomalies_of_today", lambda store, now: ("today",))
    assert ask(store, NOON) == ("found", "today")
