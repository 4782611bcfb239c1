"""Measures the GPUs once a second in a thread of its own, because the driver may block."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backends.gpu.base import PERIOD_SECONDS, DeviceIdentity, GpuReader, Round

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SamplerCost:
    """What sampling has cost so far: rounds, and CPU seconds of the thread."""

    rounds: int = 0
    cpu_seconds: float = 0.0


class GpuSampler:
    """Calls each reader every `period_seconds` and passes the results to `on_round`, in its own thread."""

    def __init__(
        self,
        readers: Sequence[GpuReader],
        on_round: Callable[[Round], None],
        *,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._readers = tuple(readers)
        self._on_round = on_round
        self._period_seconds = period_seconds
        self._stop = threading.Event()
        self._looking = threading.Lock()  # readers are not thread-safe
        self._thread = threading.Thread(target=self._run, name="gpu-telemetry", daemon=True)
        self.devices: tuple[DeviceIdentity, ...] = tuple(one for reader in self._readers for one in reader.devices())
        self.cost = SamplerCost()

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current round, and close the readers."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        for reader in self._readers:
            reader.close()

    def take_round(self) -> Round:
        """Measure once, in the caller's thread."""
        with self._looking:
            rounds = [reader.look() for reader in self._readers]
        return Round(
            tuple(sample for one in rounds for sample in one.samples),
            tuple(fault for one in rounds for fault in one.faults),
        )

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                self._on_round(self.take_round())
            except Exception:  # an unexpected error of a driver must not end the thread
                _log.exception("GPUs could not be sampled")
            self.cost = SamplerCost(self.cost.rounds + 1, time.thread_time())
            due = max(due + self._period_seconds, time.monotonic())
            self._stop.wait(due - time.monotonic())
