"""Computes autoscaling signals from the engines' latest records; a model without recent records has none.

The predicted time to first token of a new request is that of the least loaded replica: half of the current step, then
the queued prompts and its own, one after another. The step model is fitted to the last hour's steps.
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

FRESH_SECONDS: Final = 30  # older records are ignored
# For idle engines: they write a record per interval, whose start is two intervals ago when it arrives.
IDLE_FRESH_SECONDS: Final = 2 * LONGEST_IDLE_NS // 10**9 + 15
_PROMPT_SECONDS: Final = 900
_FIT_SECONDS: Final = 3_600
_FIT_STEPS: Final = 4_000
_REFIT_SECONDS: Final = 300.0
_NEWS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ModelSignals:
    """Signals over one model's replicas. `kv_share`: of the fullest KV cache; `None` if unknown.

    `waiting`, `running`: requests in all replicas; `busy_share`: mean share of busy time in the last half minute.
    """

    model: str
    replicas: int
    waiting: int
    running: int
    kv_share: float | None
    busy_share: float
    predicted_ttft_seconds: float | None


class SignalReader:
    """Reads signals from the store, at most once a second. Thread-safe."""

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
        self._turn = threading.Lock()  # a store client is not thread-safe
        self._read_at: float | None = None
        self._signals: dict[str, ModelSignals] = {}

    def read(self) -> dict[str, ModelSignals]:
        """Return the signals by model. Raises StoreUnavailable."""
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
        """Return a model's fitted step model, cached for five minutes; `None` if too few steps were measured."""
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
    """Combine the signals of a model's replicas. `rows`: of `replica_signals.sql`, at least one."""
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
    """Predict the time to first token of a new request at a replica in seconds, with prompts of mean length.

    First the current step ends (half of it on average), then queued prompts and its own are computed in turn.
    """
    tokens = max(round(uncached), 1)
    step_ns = steps.decode_ns(running, running * tokens) / 2 if running else 0.0
    return (step_ns + (waiting + 1) * steps.prefill_ns(tokens)) / 1e9
