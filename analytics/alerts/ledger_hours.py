"""Unexplained GPU time by whole hour, cached because rules are evaluated every few seconds. The store sums the steps,
so an hour is one row per engine."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from analytics.alerts.sources import GpuHour
from analytics.gpu.ledger import named_devices
from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient

_HOUR: Final = timedelta(hours=1)
_REACH: Final = timedelta(minutes=10)  # the longest span that may start before the hour
_NS: Final = 10**9


class LedgerHours:
    """Reads an hour once and caches the last one. Not thread-safe."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._hour: datetime | None = None
        self._gpus: Sequence[GpuHour] = ()

    def __call__(self, hour: datetime) -> Sequence[GpuHour]:
        """Return the GPUs of the hour that starts at `hour`. Raises StoreUnavailable."""
        if self._hour != hour:
            self._gpus = _read(self._store, hour)
            self._hour = hour
        return self._gpus


def _read(store: StoreClient, hour: datetime) -> list[GpuHour]:
    parameters = {
        "start": (hour - _REACH).timestamp(),
        "end": (hour + _HOUR + _REACH).timestamp(),
        "start_ns": int(hour.timestamp()) * _NS,
        "end_ns": int((hour + _HOUR).timestamp()) * _NS,
    }
    walls: defaultdict[str, int] = defaultdict(int)
    explained: defaultdict[str, int] = defaultdict(int)
    for row in store.query(query("gpu_hour_closes"), parameters):
        engine = text_of(row["engine_label"])
        for device in named_devices(engine, cast(Sequence[str], row["device_labels"])) or (engine,):
            walls[device] += number_of(row["wall_sum"])
            explained[device] += number_of(row["explained_sum"])
    return [GpuHour(device, walls[device], walls[device] - explained[device]) for device in sorted(walls)]
