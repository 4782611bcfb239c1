"""What a request that has ended is to be charged with, metric by metric."""

from contracts.chat import GenerationRequest
from gateway.grant import Grant
from gateway.life import Attempt, Life
from gateway.limits.demand import GPU, INPUT, MONEY, OUTPUT, Amounts


def used_by(life: Life, grant: Grant) -> Amounts:
    """Give what a request is to be charged with. What nobody reported stays as it was reserved: never free.

    A request that no model began (refused, unreachable, withdrawn from the queue) used nothing. What models did that
    it has left is not its last model's. One that was answered with a kept answer is a request, and costs what the
    policy says.
    """
    held = grant.reservation.reserved
    if life.is_hit:
        return (1, 0, 0, 0, 0, 0, life.cost.total_pico_usd or 0)
    if not life.was_begun:
        return (1 if life.attempts else 0, 0, 0, 0, 0, 0, 0)
    tokens_in, tokens_out, cost = life.usage.input_tokens, life.usage.output_tokens, life.cost.total_pico_usd
    if tokens_in is None:
        tokens_in = held(INPUT)
    if tokens_out is None:
        tokens_out = held(OUTPUT) if isinstance(life.request, GenerationRequest) else 0
    own = [attempt for attempt in life.attempts if not attempt.is_left]
    gpu_ns = gpu_time_of(own, held(GPU)) if grant.reservation.lines.counts_gpu else 0
    return (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, gpu_ns, held(MONEY) if cost is None else cost)


def gpu_time_of(attempts: list[Attempt], held_ns: int) -> int:
    """Give the GPU time, in nanoseconds, that attempts are charged with; what is not measured stays as it was held."""
    shares = [attempt.result.gpu for attempt in attempts]
    measured = [share.prefill_ns + share.decode_ns + share.recompute_ns + share.wasted_ns for share in shares if share]
    return sum(measured) if len(measured) == len(shares) else max(sum(measured), held_ns)
