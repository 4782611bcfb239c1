"""What a request that has ended is to be charged with, metric by metric."""

from contracts.chat import GenerationRequest
from gateway.grant import Grant
from gateway.life import Life
from gateway.limits.demand import GPU, INPUT, MONEY, OUTPUT, Amounts


def used_by(life: Life, grant: Grant) -> Amounts:
    """Give what a request is to be charged with. What nobody reported stays as it was reserved: never free.

    A request that no model began (refused, unreachable, withdrawn from the queue) used nothing.
    """
    held = grant.reservation.reserved
    if not life.was_begun:
        return (1 if life.attempts else 0, 0, 0, 0, 0, 0, 0)
    usage = life.usage
    generates = isinstance(life.request, GenerationRequest)
    tokens_in = usage.input_tokens if usage.input_tokens is not None else held(INPUT)
    tokens_out = usage.output_tokens if usage.output_tokens is not None else held(OUTPUT) if generates else 0
    cost = life.cost.total_pico_usd
    shares = [attempt.result.gpu for attempt in life.attempts]
    measured = [share.prefill_ns + share.decode_ns + share.recompute_ns + share.wasted_ns for share in shares if share]
    gpu = sum(measured) if len(measured) == len(shares) else max(sum(measured), held(GPU))
    return (1, tokens_in, tokens_out, tokens_in + tokens_out, 0, gpu, held(MONEY) if cost is None else cost)
