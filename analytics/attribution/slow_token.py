"""Splits the time before one token of a request by what the engine did in that time."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from algorithms.gpu_time.attribution import split_exactly
from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient

_REACH: Final = timedelta(seconds=60)  # a step that started earlier may overlap the token's time
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SeenStep:
    """An engine step near the token. `own_ns` and `prefill_ns`: the parts of `busy_ns` for the request and for others'
    prefills.

    `others`: number of other requests in the step; `others_prefilling`: how many of them were in prefill.
    """

    started_at_ns: int
    busy_ns: int
    gap_ns: int
    gap_cause: str
    kind: str
    has_it: bool
    own_recompute: int
    own_ns: int
    prefill_ns: int
    others: int = 0
    others_prefilling: int = 0


@dataclass(frozen=True, slots=True)
class TokenTime:
    """The nanoseconds before a token by cause; they sum to `total_ns`.

    `own`: computing for this request; `co_prefill`, `co_decode`: for other requests' prompts and tokens;
    `preemption`: steps without it after it was preempted, until it is computed again; `host`: between steps while work
    is queued; `queue`: before its first step, at the gateway or in the engine; `outside`: time without a step (network,
    gateway, another server).
    """

    own_ns: int = 0
    co_prefill_ns: int = 0
    co_decode_ns: int = 0
    preemption_ns: int = 0
    host_ns: int = 0
    queue_ns: int = 0
    outside_ns: int = 0

    @property
    def total_ns(self) -> int:
        """Return the total time before the token in nanoseconds."""
        return sum(getattr(self, one.name) for one in fields(TokenTime))


def steps_around(store: StoreClient, request_id: UUID, begin_ns: int, end_ns: int) -> list[SeenStep]:
    """Return the steps of a request's engines, from a minute before a time range until a minute after it.

    Times are Unix nanoseconds. Empty if no engine reported a step with the request, or the steps have expired.
    """
    around = {
        "request_id": request_id,
        "start": (_EPOCH + timedelta(microseconds=begin_ns // 1000) - _REACH).timestamp(),
        "end": (_EPOCH + timedelta(microseconds=end_ns // 1000)).timestamp() + _REACH.total_seconds(),
    }
    return [
        SeenStep(
            number_of(one["started_at_ns"]),
            number_of(one["busy_ns"]),
            number_of(one["gap_ns"]),
            text_of(one["cause_label"]),
            text_of(one["kind_label"]),
            bool(one["has_it"]),
            number_of(one["own_recompute"]),
            number_of(one["own_sum"]),
            number_of(one["prefill_sum"]),
            number_of(one["others"]),
            number_of(one["others_prefilling"]),
        )
        for one in store.query(query("steps_around"), around)
    ]


def token_time(steps: Sequence[SeenStep], begin_ns: int, end_ns: int, waited_ns: int = 0) -> TokenTime:
    """Split the time from `begin_ns` to `end_ns` (Unix ns) by the engine's steps, which are in order of time.

    `waited_ns` of it was spent in the gateway's queue.
    """
    sums = dict.fromkeys((one.name for one in fields(TokenTime)), 0)
    firsts = [step.started_at_ns for step in steps if step.has_it]
    first_ns = min(firsts, default=end_ns)
    for place, step in enumerate(steps):
        gap = _overlap(step.started_at_ns - step.gap_ns, step.started_at_ns, begin_ns, end_ns)
        if gap:
            before = step.started_at_ns <= first_ns
            sums[
                ("queue_ns" if before and not step.has_it else "host_ns") if step.gap_cause == "host" else "outside_ns"
            ] += gap
        busy = _overlap(step.started_at_ns, step.started_at_ns + step.busy_ns, begin_ns, end_ns)
        if not busy or step.kind != "step":
            continue
        if not step.has_it and step.started_at_ns < first_ns:
            sums["queue_ns"] += busy
        elif not step.has_it and _is_preempted(steps, place):
            sums["preemption_ns"] += busy
        else:
            rest = max(step.busy_ns - step.own_ns - step.prefill_ns, 0)
            names = ("own_ns", "co_prefill_ns", "co_decode_ns")
            parts = split_exactly(busy, [float(step.own_ns), float(step.prefill_ns), float(rest)])
            for name, part in zip(names, parts, strict=True):
                sums[name] += part
    covered = sum(sums.values()) - sums["outside_ns"]
    left = max(end_ns - begin_ns - covered, 0)
    queued = min(waited_ns, left)
    sums["queue_ns"] += queued
    sums["outside_ns"] = left - queued
    return TokenTime(**sums)


def _is_preempted(steps: Sequence[SeenStep], place: int) -> bool:
    """Return whether the request was preempted: its next step computes again what was computed before."""
    after = next((step for step in steps[place + 1 :] if step.has_it), None)
    return after is not None and after.own_recompute > 0


def _overlap(start: int, end: int, begin_ns: int, end_ns: int) -> int:
    return max(min(end, end_ns) - max(start, begin_ns), 0)
