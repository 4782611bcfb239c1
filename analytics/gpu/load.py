"""Utilisation of engines over time: batch size, queue length, KV cache, prefix hits."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One engine in one time step, over its engine steps. `None` if it ran none or does not report a value.

    `batch` and `tokens` are means per engine step, `waiting` the mean queue length. `kv_share` and `kv_most` are the
    mean and the maximum share of KV blocks in use.
    """

    engine_steps: int = 0
    batch: float | None = None
    tokens: float | None = None
    waiting: float | None = None
    waiting_most: int = 0
    running_most: int = 0
    kv_share: float | None = None
    kv_most: float | None = None
    cached_tokens: int = 0
    prefill_tokens: int = 0

    @property
    def prefix_hits(self) -> float | None:
        """Return the share of prompt tokens that came from the prefix cache."""
        prompt = self.cached_tokens + self.prefill_tokens
        return self.cached_tokens / prompt if prompt else None


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One engine: a point per time step, and one over all."""

    engine: str
    points: tuple[LoadPoint, ...]
    whole: LoadPoint


@dataclass(frozen=True, slots=True)
class Load:
    """All engines that ran a step in the range, over time `steps` (starts, UTC)."""

    step: timedelta
    steps: tuple[datetime, ...]
    engines: tuple[EngineLoad, ...]


@dataclass(slots=True)
class _Sums:
    """Sums from which points are computed, as means cannot be added over time."""

    steps: int = 0
    slots: int = 0
    tokens: int = 0
    prefill: int = 0
    cached: int = 0
    waiting: int = 0
    waiting_most: int = 0
    running_most: int = 0
    kv: int = 0
    kv_most: int = 0
    kv_total: int = 0

    def add(self, other: "_Sums") -> None:
        for name in ("steps", "slots", "tokens", "prefill", "cached", "waiting", "kv"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("waiting_most", "running_most", "kv_most", "kv_total"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    def point(self) -> LoadPoint:
        if not self.steps:
            return LoadPoint(prefill_tokens=self.prefill, cached_tokens=self.cached)
        return LoadPoint(
            engine_steps=self.steps,
            batch=self.slots / self.steps,
            tokens=self.tokens / self.steps,
            waiting=self.waiting / self.steps,
            waiting_most=self.waiting_most,
            running_most=self.running_most,
            kv_share=self.kv / self.steps / self.kv_total if self.kv_total else None,
            kv_most=self.kv_most / self.kv_total if self.kv_total else None,
            cached_tokens=self.cached,
            prefill_tokens=self.prefill,
        )


def engine_load(store: StoreClient, scope: Scope) -> Load:
    """Return the engines' load in a scope's range, of all tenants: for callers who may see the whole installation.

    Reads the sums per minute, which are stored permanently. Raises StoreUnavailable.
    """
    covered, starts = scope.covered, scope.step_starts
    places = {start: place for place, start in enumerate(starts)}
    parameters = {
        "start": covered.start_s,
        "end": covered.end_s,
        "step": starts.step,
        "origin": scope.step_origin,
    }
    found: dict[str, list[_Sums]] = {}
    for row in store.query(query("engine_load"), parameters):
        place = places[number_of(row["step_start"])]
        points = found.setdefault(text_of(row["engine"]), [_Sums() for _ in starts])
        points[place].add(_sums(row))
    engines = []
    for engine, points in sorted(found.items()):
        whole = _Sums()
        for one in points:
            whole.add(one)
        engines.append(EngineLoad(engine, tuple(one.point() for one in points), whole.point()))
    return Load(
        timedelta(seconds=starts.step), tuple(datetime.fromtimestamp(start, UTC) for start in starts), tuple(engines)
    )


def _sums(row: dict[str, object]) -> _Sums:
    columns = (
        *("step_count", "slot_sum", "token_sum", "prefill_sum", "cached_sum", "waiting_sum", "waiting_most"),
        *("running_most", "kv_sum", "kv_most", "kv_total"),
    )
    return _Sums(*(number_of(row[column]) for column in columns))
