"""The signals themselves, from what engines have just told the store; a model that told nothing has none.

A newcomer's predicted time to first token is that of the least loaded replica: the prompts that wait there and its
own, computed one after another, after half of the step in flight. The step model is fitted to the last hour's steps.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from algorithms.gpu_time.ledger_clock import LONGEST_IDLE_NS
from algorithms.gpu_time.step_fit import MIN_SAMPLES
from algorithms.gpu_time.step_model import StepModel
from analytics.planner.recorded import step_sample
from analytics.planner.step_pace import paced
from analytics.queries import query
from analytics.rows import number_of, numbers_of, text_of
from backends.store.client import Row, StoreClient

FRESH_SECONDS: Final = 30  # what is older says nothing of now
# But of an engine that idles: the last stretch that it wrote began two intervals ago, and takes a while to arrive.
IDLE_FRESH_SECONDS: Final = 2 * LONGEST_IDLE_NS // 10**9 + 15
_PROMPT_SECONDS: Final = 900
_FIT_SECONDS: Final = 3_600
_FIT_STEPS: Final = 4_000
_REFIT_SECONDS: Final = 300.0
_NEWS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ModelSignals:
    """One model's replicas together. `kv_share` is the fullest cache's; `None`: not known.

    `waiting` and `running` are requests in all replicas, `busy_share` the mean share of the last half minute.
    """

    model: str
    replicas: int
    waiting: int
    running: int
    kv_share: float | None
    busy_share: float
    predicted_ttft_seconds: float | None


class SignalReader:
    """Reads signals, at most once a second from the store. Threads take turns."""

    def __init__(
        self,
        store: StoreClient,
        *,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._now_s = now_s
        self._monotonic_s = monotonic_s
        self._models: dict[str, tuple[float, StepModel | None]] = {}
        self._turn = threading.Lock()  # a store's client serves one thread at a time
        self._read_at: float | None = None
        self._signals: dict[str, ModelSignals] = {}

    def read(self) -> dict[str, ModelSignals]:
        """Return every model's signals that has any. Raises StoreUnavailable."""
        with self._turn:
            return self._read()

    def _read(self) -> dict[str, ModelSignals]:
        at = self._monotonic_s()
        if self._read_at is not None and at - self._read_at < _NEWS_SECONDS:
            return self._signals
        end = int(self._now_s()) + 1
        moments = {"start": end - FRESH_SECONDS, "idle_start": end - IDLE_FRESH_SECONDS, "end": end}
        rows = self._store.query(query("replica_signals"), moments)
        sizes = {
            text_of(row["model_label"]): float(numbers_of([row["mean_uncached"]])[0])
            for row in self._store.query(
                query("prompt_sizes"), {"tenant": None, "start": end - _PROMPT_SECONDS, "end": end}
            )
        }
        by_model: dict[str, list[Row]] = {}
        for row in rows:
            by_model.setdefault(text_of(row["model_label"]), []).append(row)
        self._signals = {
            model: signals_of(model, found, self._steps(model, end) if model in sizes else None, sizes.get(model))
            for model, found in by_model.items()
        }
        self._read_at = at
        return self._signals

    def _steps(self, model: str, end: int) -> StepModel | None:
        """Return a model's fitted steps, fitted again every five minutes; `None` if too few were measured."""
        known = self._models.get(model)
        at = self._monotonic_s()
        if known is not None and at - known[0] < _REFIT_SECONDS:
            return known[1]
        parameters = {"start": end - _FIT_SECONDS, "end": end, "model": model, "row_limit": _FIT_STEPS}
        rows = self._store.query(query("measured_steps"), parameters)
        samples = [step_sample(row, place) for place, row in enumerate(reversed(rows))]
        found = paced(samples).steps if len(rows) >= MIN_SAMPLES else None
        self._models[model] = (at, found)
        return found


def signals_of(model: str, rows: list[Row], steps: StepModel | None, uncached: float | None) -> ModelSignals:
    """Put a model's replicas together. `rows` are of `replica_signals.sql`, at least one."""
    shares = [
        number_of(row["blocks_used"]) / number_of(row["blocks_total"]) for row in rows if number_of(row["blocks_total"])
    ]
    idle = [bool(number_of(row["is_idle"])) for row in rows]
    waiting = [0 if still else number_of(row["waiting_now"]) for row, still in zip(rows, idle, strict=True)]
    running = [0 if still else number_of(row["running_now"]) for row, still in zip(rows, idle, strict=True)]
    busy = sum(number_of(row["busy_sum"]) for row in rows) / len(rows) / (FRESH_SECONDS * 1e9)
    predicted = None
    if steps is not None and uncached is not None:
        predicted = min(
            predicted_ttft_seconds(steps, uncached, queue, seated)
            for queue, seated in zip(waiting, running, strict=True)
        )
    return ModelSignals(
        model,
        len(rows),
        sum(waiting),
        sum(running),
        max(shares) if shares else None,
        min(busy, 1.0),
        predicted,
    )


def predicted_ttft_seconds(steps: StepModel, uncached: float, waiting: int, running: int) -> float:
    """Predict a newcomer's time to first token at a replica, in seconds, from prompts of the usual length.

    Prompts ahead and its own are computed one after another; before that ends the step in flight, half on average.
    """
    tokens = max(round(uncached), 1)
    step_ns = steps.decode_ns(running, running * tokens) / 2 if running else 0.0
    return (step_ns + (waiting + 1) * steps.prefill_ns(tokens)) / 1e9
