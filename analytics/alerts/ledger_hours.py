"""How far the GPU ledger's whole hours close, each read once: it is made of single steps, and rules are looked at all
the time. The store adds the steps up, so an hour costs a row for each engine, however many steps there were."""

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
_REACH: Final = timedelta(minutes=10)  # the longest stretch that may begin before the hour
_NS: Final = 10**9


class LedgerHours:
    """Reads an hour when it is asked for the first time, and remembers that one. For one thread at a time."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._hour: datetime | None = None
        self._gpus: Sequence[GpuHour] = ()

    def __call__(self, hour: datetime) -> Sequence[GpuHour]:
        """Return the GPUs of the hour that begins then. Raises StoreUnavailable."""
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
