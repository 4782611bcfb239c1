"""What a decision costs in memory: a request under three levels, four limits and one budget, without a server."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from contracts.access.identity import Identity
from contracts.api.chat import ChatRequest, Message
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, PriceBook, bill, price_card
from contracts.rules.limits import BudgetSpec, Level, LimitSpec, Scope, Window
from contracts.rules.metrics import Metric
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.limits.counters.memory_store import MemoryStore
from gateway.limits.estimates.counting import TokenEstimator
from gateway.limits.estimates.output_estimates import OutputEstimator
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Grant, Reservation, take
from gateway.request.attempt import Attempt
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.drill.standalone import standalone_chat

_AMPLE: Final = 10**15
_WARM_UP: Final = 2_000
_WHO: Final = Identity("acme", "core", "apollo", "key_1")
_BODY: Final = b"x" * 1024
_USED: Final = Usage(input_text=200, output_text=100)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of many measurements of one round, in their unit."""

    p50: float
    p99: float


class Decision:
    """A limiter under load, one request after the other: what each of its verbs takes."""

    def __init__(self) -> None:
        self._snapshot = _snapshot()
        self._limiter = Limiter(MemoryStore(), TokenEstimator(), OutputEstimator(), Clock())
        self._card = self._snapshot.prices.card_for("m", "acme", datetime.now(UTC), "openai_http")
        self._timer_ns = _cost_of_the_timer()

    def round(self, requests: int) -> dict[str, Quantiles]:
        """Accept that many requests through; return what `reserve`, `rate_headers`, `settle` and the bare `take` took.

        What reading the clock costs by itself is subtracted.
        """
        for _ in range(_WARM_UP):
            self._request()
        gc.collect()
        taken = [self._request() for _ in range(requests)]
        names = ("reserve", "rate_headers", "settle", "take")
        return {
            name: quantiles([max(one[place] - self._timer_ns, 0) for one in taken]) for place, name in enumerate(names)
        }

    def _request(self) -> tuple[int, int, int, int]:
        clock, limiter = time.perf_counter_ns, self._limiter
        life = self._life()
        began = clock()
        grant = _finished(limiter.reserve(life, _nobody_counts))
        reserved = clock()
        limiter.rate_headers(grant)
        told = clock()
        self._serve(life)
        ended = clock()
        limiter.settle(life, grant)
        settled = clock()
        return reserved - began, told - reserved, settled - ended, self._bare_take(grant)

    def _bare_take(self, grant: Grant) -> int:
        lines, amounts, now_ns = grant.reservation.lines, grant.reservation.portions[0].amounts, time.time_ns()
        began = time.perf_counter_ns()
        portion = take(lines, amounts, now_ns)
        ended = time.perf_counter_ns()
        assert portion is not None
        Reservation(lines, [portion]).settle(amounts, now_ns)
        return ended - began

    def _life(self) -> RequestState:
        now_ns = time.time_ns()
        life = standalone_chat(_BODY, now_ns, time.monotonic_ns(), self._snapshot)
        life.request, life.who = ChatRequest("m", [Message("user", "hi")]), _WHO
        life.requested_model, life.model = "m", self._snapshot.models["m"]
        return life

    def _serve(self, life: RequestState) -> None:
        life.attempts.append(Attempt(1, self._snapshot.pools["p"].targets[0], "first", 0, 0))
        life.usage, life.count_method, life.finish_reason = _USED, "reported", "stop"
        life.cost = bill(life.usage, "chat", self._card)


def quantiles(values: Sequence[float]) -> Quantiles:
    """Return the median and the 99th percentile."""
    ordered = sorted(values)
    return Quantiles(float(ordered[len(ordered) // 2]), float(ordered[len(ordered) * 99 // 100]))


def _finished(work: Any) -> Grant:
    """Run a coroutine that never waits, as a task that is running does, without a loop's turn."""
    try:
        work.send(None)
    except StopIteration as stopped:
        assert isinstance(stopped.value, Grant)
        return stopped.value
    raise AssertionError("counters in memory made a request wait")


async def _nobody_counts() -> int | None:
    return None


def _cost_of_the_timer(samples: int = 20_000) -> int:
    clock: Callable[[], int] = time.perf_counter_ns
    found = []
    for _ in range(samples):
        began = clock()
        found.append(clock() - began)
    return int(quantiles(found).p50)


def _snapshot() -> Snapshot:
    def limit(level: Level, subject: str, metric: Metric, window: Window) -> LimitSpec:
        return LimitSpec(f"{level}-{metric}-{window}", Scope("acme", level, subject), metric, _AMPLE, window)

    limits = (
        limit("tenant", "", "requests", "minute"),
        limit("team", "*", "tokens", "minute"),
        limit("key", "*", "requests", "second"),
        limit("key", "*", "tokens", "minute"),
    )
    budget = BudgetSpec("b1", Scope("acme", "tenant"), "pico_usd", _AMPLE, "month", thresholds=(50, 80, 100))
    card = price_card(NewPrice("m", "v1", {"input_text": Decimal(1), "output_text": Decimal(2)}))
    target = TargetSpec("t", "p", "openai_http", "http://127.0.0.1:1/v1")
    return Snapshot(
        revision=1,
        keys={},
        models={"m": ModelSpec("m", "p")},
        pools={"p": PoolSpec("p", (target,))},
        prices=PriceBook([card]),
        limits=limits,
        budgets=(budget,),
    )
