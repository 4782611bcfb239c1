"""Caches anomalies of the last whole day and of today, because rules are evaluated every few seconds."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from analytics.anomaly.spend import SpendAnomaly, anomalies_of_today, spend_anomalies
from backends.store.client import StoreClient

_KEPT: Final = timedelta(minutes=5)  # cache time; records of yesterday may still arrive


class RememberedAnomalies:
    """Reads a day's anomalies and caches them for five minutes. Not thread-safe."""

    def __init__(self) -> None:
        self._found: Sequence[SpendAnomaly] = ()
        self._day: date | None = None
        self._read_at = datetime.min.replace(tzinfo=UTC)

    def __call__(self, store: StoreClient, now: datetime) -> Sequence[SpendAnomaly]:
        """Return the anomalies of the day before `now` (UTC) and of today so far. Raises StoreUnavailable."""
        day = now.astimezone(UTC).date()
        if day != self._day or not timedelta(0) <= now - self._read_at < _KEPT:
            self._found = (*spend_anomalies(store, now), *anomalies_of_today(store, now))
            self._day, self._read_at = day, now
        return self._found
