"""The dead-letter file: records that could not be stored, with the reason, one JSON object per line."""

import base64
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from collector.counters import Counters

_log = logging.getLogger(__name__)
_MAX_REASON: Final = 500


class DeadLetters:
    """Appends to `letters.jsonl` in a directory. At half of `max_bytes` the file is renamed to `letters.1.jsonl`,
    replacing the previous one. Keys of a line: at_ns, cause, reason, batch_id, index, payload (base64).
    """

    def __init__(
        self, directory: Path, *, max_bytes: int, counters: Counters, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.path = directory / "letters.jsonl"
        self._max_bytes = max_bytes
        self._counters = counters
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._written = 0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def written(self) -> int:
        """Return the number of dead letters written since the process started."""
        return self._written

    def write(self, cause: str, reason: str, *, batch_id: str, index: int, payload: bytes) -> None:
        """Append one record that cannot be stored, and count it under `cause`. If the disk is full, only log it."""
        letter = {
            "at_ns": self._clock_ns(),
            "cause": cause,
            "reason": reason[:_MAX_REASON],
            "batch_id": batch_id,
            "index": index,
            "payload": base64.b64encode(payload).decode(),
        }
        self._counters.rejected(cause)
        try:
            with self._lock:
                self._append(msgspec.json.encode(letter) + b"\n")
                self._written += 1
        except OSError as error:
            _log.error("dead letter lost path=%s cause=%s error=%s", self.path, cause, error.strerror)

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size >= self._max_bytes // 2:
            os.replace(self.path, self.path.with_suffix(".1.jsonl"))
