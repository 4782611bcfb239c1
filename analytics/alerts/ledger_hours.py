"""The GPU ledger's whole hours, each read once: it is made of single steps, and rules are looked at all the time."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from analytics.alerts.sources import GpuHour
from analytics.gpu.ledger import gpu_ledger
from analytics.scope import Period
from backends.store.client import StoreClient


class LedgerHours:
    """Reads an hour when it is asked for the first time, and remembers that one. For one thread at a time."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._hour: datetime | None = None
        self._gpus: Sequence[GpuHour] = ()

    def __call__(self, hour: datetime) -> Sequence[GpuHour]:
        """Give the GPUs of the hour that begins then. Raises StoreUnavailable."""
        if self._hour != hour:
            ledger = gpu_ledger(self._store, Period(hour, hour + timedelta(hours=1)))
            self._gpus = [
                GpuHour(device, lines.wall_ns, lines.unexplained_ns) for device, lines in ledger.by_device().items()
            ]
            self._hour = hour
        return self._gpus
