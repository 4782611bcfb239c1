"""What a request that has ended is charged, by metric: its answer, answers before it, attempts that failed."""

import asyncio
import contextlib
from typing import Literal, TypeAlias

import msgspec

from contracts.api.chat import GenerationRequest
from contracts.errors import (
    ClientGone,
    EngineUnavailable,
    HedgeLost,
    InvalidRequest,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.metering.usage import Usage
from contracts.pricing.failure_billing import DEFAULT_BILLING, read_billing
from contracts.pricing.prices import Cost
from gateway.limits.counters.base import CounterStore
from gateway.limits.demand import GPU, INPUT, MONEY, NOTHING, ONE_REQUEST, OUTPUT, TOKENS, Amounts, amounts_of
from gateway.limits.reservation import Grant
from gateway.request.attempt import Attempt
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState

Failure: TypeAlias = Literal["not_begun", "on_error", "on_timeout", "on_break", "on_cancel"]

# The target refused before any work on the prompt, or the request never reached it.
_NOT_BEGUN = (EngineUnavailable, InvalidRequest, TargetMisconfigured, UpstreamRateLimited, UpstreamUnreachable)


def failure_of(error: TollkeeperError) -> Failure:
    """Return the kind of failure, by which the target's billing settings decide whether an attempt is charged."""
    if isinstance(error, _NOT_BEGUN) or error.is_unsent:
        return "not_begun"
    status = error.upstream_status
    if status is not None and not 200 <= status < 300:
        return "on_error"
    if isinstance(error, UpstreamTimeout):
        return "on_timeout"
    if isinstance(error, ClientGone | HedgeLost):
        return "on_cancel"
    if status is None and isinstance(error, UpstreamRejected | UpstreamError) and not isinstance(error, UpstreamBroken):
        return "on_error"
    return "on_break"  # also a fault of the gateway: what the target had done by then is not known


def is_free(attempt: Attempt) -> bool:
    """Return whether an attempt costs the tenant nothing: it failed before any token, in a way that is not billed."""
    error = attempt.error
    if error is None or attempt.tokens or attempt.result.usage.output_tokens:
        return False
    if attempt.reported_usage.output_tokens:
        return False
    failure = failure_of(error)
    if failure == "not_begun":
        return True
    if attempt.result.usage.total_tokens == 0:  # the target's own account: it has done nothing
        return True
    billing = read_billing(attempt.target) if attempt.target.settings else DEFAULT_BILLING
    return bool(getattr(billing, failure) == "free")


def used_by(life: RequestState, grant: Grant) -> Amounts:
    """Return what a request is to be charged with.

    A request whose attempts were all free, or that was withdrawn from the queue, used nothing. A failed one that may be
    billed is charged its estimate. Reported usage that cannot be read is charged as it was reserved. Work of models
    that a request has left does not belong to its last model. A request answered from the cache counts as a request,
    and costs what the policy says.
    """
    if life.teaches_plan and life.cost.total_pico_usd is not None:  # one good answer, of which all is known
        return amounts_of(1, life.tokens_in or 0, life.tokens_out or 0, pico_usd=life.cost.total_pico_usd)
    held = grant.reservation.reserved
    if life.is_hit:
        return amounts_of(1, pico_usd=life.cost.total_pico_usd or 0)
    if life.owes_nothing:
        return ONE_REQUEST if life.attempts else NOTHING
    tokens_in, tokens_out = _tokens_of(life, grant)
    cost = life.cost.total_pico_usd
    own = [attempt for attempt in life.attempts if not attempt.is_left]
    gpu_ns = 0
    if grant.reservation.lines.counts_gpu:
        gpu_ns = gpu_time_of(own, _gpu_unmeasured(own, grant, tokens_in, tokens_out))
    return amounts_of(1, tokens_in, tokens_out, gpu_ns=gpu_ns, pico_usd=held(MONEY) if cost is None else cost)


def _tokens_of(life: RequestState, grant: Grant) -> tuple[int, int]:
    """Return the input and output tokens to charge: as reported or counted, else as reserved."""
    tokens_in, tokens_out = life.tokens_in, life.tokens_out
    if tokens_in is None and tokens_out is None:  # it was not settled as calls of models are
        tokens_in, tokens_out = life.usage.input_tokens, life.usage.output_tokens
    if tokens_in is None:
        tokens_in = grant.reservation.reserved(INPUT)
    if tokens_out is None:
        tokens_out = grant.reservation.reserved(OUTPUT) if isinstance(life.request, GenerationRequest) else 0
    return tokens_in, tokens_out


def gpu_time_of(attempts: list[Attempt], unmeasured_ns: int) -> int:
    """Return the GPU time in nanoseconds to charge for attempts that are not free.

    If the time of an attempt was not measured, at least `unmeasured_ns` is charged.
    """
    shares = [attempt.result.gpu for attempt in attempts if not attempt.is_free]
    measured = [share.prefill_ns + share.decode_ns + share.recompute_ns + share.wasted_ns for share in shares if share]
    return sum(measured) if len(measured) == len(shares) else max(sum(measured), unmeasured_ns)


def _gpu_unmeasured(attempts: list[Attempt], grant: Grant, tokens_in: int, tokens_out: int) -> int:
    """Return the GPU time to charge if none was measured: an estimate from the tokens if the request failed."""
    held_ns = grant.reservation.reserved(GPU)
    if all([attempt.error is None for attempt in attempts if not attempt.is_free]):
        return held_ns
    return min(held_ns, grant.rates.at_start(tokens_in, tokens_out)[GPU])


async def reserve_late(used: Amounts, grant: Grant, store: CounterStore, clock: Clock) -> None:
    """Reserve what an ended request used beyond its grant from shared counters, all of it or nothing. Raise no error.

    The gateway does not see every answer grow, and a stream may arrive in one piece. With leased counters, this process
    may hold too little although other capacity is left in Redis: without asking there, the excess would be charged to
    no one.
    """
    reservation = grant.reservation
    lacking = reservation.lacking(used)
    if not any(lacking) or reservation.extend(lacking, clock.steady_ns()):
        return
    asked = [(counter, lacking[place]) for counter, place in reservation.lines.all if lacking[place]]
    # The client may leave meanwhile: it is charged what could be reserved without asking.
    with contextlib.suppress(asyncio.CancelledError, TimeoutError):
        if await store.seek_room(asked, "", clock.steady_ns()) is None:
            reservation.extend(lacking, clock.steady_ns())


class EarlierAnswer(msgspec.Struct):
    """An answer that was not good enough, with its attempts and the grant that was reserved for them."""

    attempts: list[Attempt]
    grant: Grant | None


def settle_earlier(life: RequestState, earlier: EarlierAnswer, usage: Usage, cost: Cost, now_ns: int) -> None:
    """Charge an earlier answer by its own usage and price, and add that to the request's cost and charges.

    The request itself is counted once, with its last answer. If an earlier answer's usage is unknown, its reservation
    is charged.
    """
    grant, charged = earlier.grant, cost.total_pico_usd
    if grant is not None:
        reservation = grant.reservation
        paid = reservation.settle(used_earlier(earlier.attempts, grant, usage, cost), now_ns)
        if reservation.lines.counts_money:
            charged = paid[MONEY]
        life.reserved_tokens = (life.reserved_tokens or 0) + reservation.reserved(TOKENS)
        life.overdraft_tokens = (life.overdraft_tokens or 0) + reservation.overdraft[TOKENS]
        charges = [
            (max(portion.at_ns - life.started_at_ns, 0), portion.charged_tokens)
            for portion in reservation.portions
            if portion.charged_tokens
        ]
        life.charges = [*charges, *life.charges]
    known = charged is not None and life.charged_pico_usd is not None
    life.charged_pico_usd = (charged or 0) + (life.charged_pico_usd or 0) if known else None
    life.cost = _together(cost, life.cost)


def used_earlier(attempts: list[Attempt], grant: Grant, usage: Usage, cost: Cost) -> Amounts:
    """Return the amounts to charge for an earlier answer, by metric."""
    held, pico_usd = grant.reservation.reserved, cost.total_pico_usd
    tokens_in = held(INPUT) if usage.input_tokens is None else usage.input_tokens
    tokens_out = held(OUTPUT) if usage.output_tokens is None else usage.output_tokens
    gpu_ns = gpu_time_of(attempts, held(GPU)) if grant.reservation.lines.counts_gpu else 0
    money = held(MONEY) if pico_usd is None else pico_usd
    return amounts_of(0, tokens_in, tokens_out, gpu_ns=gpu_ns, pico_usd=money)


def _together(one: Cost, other: Cost) -> Cost:
    """Add the costs of two answers; the later one's price card is kept. A known and an unknown cost make an unknown
    one.
    """
    totals = (one.total_pico_usd, other.total_pico_usd)
    parts = dict(other.parts)
    for name, amount in one.parts.items():
        parts[name] = parts.get(name, 0) + amount
    return Cost(
        total_pico_usd=None if totals[0] is None or totals[1] is None else totals[0] + totals[1],
        parts=parts,
        unpriced=tuple(dict.fromkeys(one.unpriced + other.unpriced)),
        version=other.version,
        basis=other.basis,
        tier=other.tier,
    )
