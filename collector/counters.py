"""What the collector counts about itself; its health page shows all of it."""

import threading
from collections import Counter


class Counters:
    """Counts by cause, since the process began. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._received: Counter[str] = Counter()
        self._exported: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._noticed: Counter[str] = Counter()

    def received(self, signal: str, records: int) -> None:
        """Count records acknowledged, by signal."""
        self._add(self._received, signal, records)

    def exported(self, table: str, rows: int) -> None:
        """Count rows the store has taken, by table."""
        self._add(self._exported, table, rows)

    def rejected(self, cause: str, records: int = 1) -> None:
        """Count records, or whole requests, that were not taken, by cause."""
        self._add(self._rejected, cause, records)

    def noticed(self, what: str, times: int = 1) -> None:
        """Count what was put right or is merely worth knowing: clamped times, dropped duplicates, retries."""
        self._add(self._noticed, what, times)

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Give all counts by group and name."""
        with self._lock:
            return {
                "received": dict(self._received),
                "exported": dict(self._exported),
                "rejected": dict(self._rejected),
                "noticed": dict(self._noticed),
            }

    def _add(self, counter: Counter[str], name: str, amount: int) -> None:
        if amount:
            with self._lock:
                counter[name] += amount
