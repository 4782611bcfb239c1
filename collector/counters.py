"""The collector's own counters, for its health page and metrics."""

import threading
from collections import Counter
from typing import Final

OTHER_TENANTS: Final = "other"
_MAX_TENANTS: Final = 1000


class Counters:
    """Counts by cause since the process started. Thread-safe.

    Rejected and corrected records are also counted by tenant, if it is known. Beyond a thousand tenants the rest counts
    as "other", so that senders cannot fill memory with names.
    """

    def __init__(self, max_tenants: int = _MAX_TENANTS) -> None:
        self._lock = threading.Lock()
        self._received: Counter[str] = Counter()
        self._exported: Counter[str] = Counter()
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._noticed: Counter[tuple[str, str]] = Counter()
        self._max_tenants = max_tenants
        self._tenants: set[str] = set()

    def received(self, signal: str, records: int) -> None:
        """Count acknowledged records, by signal (logs, traces, metrics)."""
        if records:
            with self._lock:
                self._received[signal] += records

    def exported(self, table: str, rows: int) -> None:
        """Count rows that the store has accepted, by table."""
        if rows:
            with self._lock:
                self._exported[table] += rows

    def rejected(self, cause: str, records: int = 1, *, tenant: str = "") -> None:
        """Count rejected records, or whole requests, by cause; `tenant` is "" if it is unknown."""
        self._add(self._rejected, cause, tenant, records)

    def noticed(self, what: str, times: int = 1, *, tenant: str = "") -> None:
        """Count corrections and events: clamped times, dropped duplicates, retries."""
        self._add(self._noticed, what, tenant, times)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return all counts by group and name, over all tenants."""
        with self._lock:
            return {
                "received": dict(self._received),
                "exported": dict(self._exported),
                "rejected": _by_name(self._rejected),
                "noticed": _by_name(self._noticed),
            }

    def by_tenant(self) -> dict[str, dict[tuple[str, str], int]]:
        """Return the counts of rejected and corrected records by group and (name, tenant)."""
        with self._lock:
            return {"rejected": dict(self._rejected), "noticed": dict(self._noticed)}

    def _add(self, counter: Counter[tuple[str, str]], name: str, tenant: str, amount: int) -> None:
        if not amount:
            return
        with self._lock:
            if tenant and tenant not in self._tenants:
                if len(self._tenants) < self._max_tenants:
                    self._tenants.add(tenant)
                else:
                    tenant = OTHER_TENANTS
            counter[name, tenant] += amount


def _by_name(counter: Counter[tuple[str, str]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (name, _), amount in counter.items():
        found[name] += amount
    return dict(found)
