"""Charges for answers of a cascade that were not good enough: each is billed at its own model's price."""

import msgspec

from contracts.metering.usage import Usage
from contracts.pricing.prices import Cost
from gateway.limits.demand import GPU, INPUT, MONEY, OUTPUT, TOKENS, Amounts, amounts_of
from gateway.limits.grant import Grant
from gateway.request.attempt import Attempt
from gateway.request.charges.charging import gpu_time_of
from gateway.request.request_state import RequestState


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
        life.charges = [
            (max(portion.at_ns - life.started_at_ns, 0), portion.charged_tokens)
            for portion in reservation.portions
            if portion.charged_tokens
        ] + life.charges
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
