"""Compute the charges of a request that has ended, by metric."""

from contracts.api.chat import GenerationRequest
from gateway.limits.demand import GPU, INPUT, MONEY, NOTHING, ONE_REQUEST, OUTPUT, Amounts, amounts_of
from gateway.limits.grant import Grant
from gateway.request.attempt import Attempt
from gateway.request.request_state import RequestState


def used_by(life: RequestState, grant: Grant) -> Amounts:
    """Return what a request is charged with.

    A request whose attempts were all free (`failed_attempts.py`), or that was withdrawn from the queue, used nothing. A
    failed one that may be billed is charged its estimate. Reported usage that cannot be read is charged as it was
    reserved. Work of models that a request has left does not belong to its last model. A request answered from the
    cache counts as a request, and costs what the policy says.
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
