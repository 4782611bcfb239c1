"""A request's demand by metric, before and after it runs."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from contracts.rules.metrics import METRICS, Metric

# In the order of METRICS. A tuple, because the hot path looks up a counter's amount by its metric's index.
Amounts: TypeAlias = tuple[int, ...]

PLACE: Final[dict[Metric, int]] = {metric: place for place, metric in enumerate(METRICS)}
REQUESTS: Final[int] = PLACE["requests"]
INPUT: Final[int] = PLACE["input_tokens"]
OUTPUT: Final[int] = PLACE["output_tokens"]
TOKENS: Final[int] = PLACE["tokens"]
CONCURRENCY: Final[int] = PLACE["concurrency"]
GPU: Final[int] = PLACE["gpu_ns"]
MONEY: Final[int] = PLACE["pico_usd"]
# A rule for one of these is reserved by the number of tokens. A new metric that tokens use up belongs here.
USED_BY_OUTPUT: Final = frozenset((OUTPUT, TOKENS, GPU, MONEY))  # it can end an answer before its end
USED_BY_TOKENS: Final = USED_BY_OUTPUT | {INPUT}  # a prompt needs some of each


def amounts_of(
    requests: int,
    input_tokens: int = 0,
    output_tokens: int = 0,
    concurrency: int = 0,
    gpu_ns: int = 0,
    pico_usd: int = 0,
) -> Amounts:
    """Return an amount for each metric, in the order of METRICS. `tokens` is the sum of input and output."""
    return (requests, input_tokens, output_tokens, input_tokens + output_tokens, concurrency, gpu_ns, pico_usd)


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices per token before the kind of token is known: upper bounds, with GPU time estimated.

    In pico-USD and GPU nanoseconds per token. `None` money: the model has no price for this tenant.
    """

    input_pico_usd: int | None = 0
    output_pico_usd: int | None = 0
    request_pico_usd: int = 0
    input_gpu_ns: int = 0
    output_gpu_ns: int = 0

    @property
    def is_priced(self) -> bool:
        """Return whether money can be reserved."""
        return self.input_pico_usd is not None and self.output_pico_usd is not None

    def at_start(self, input_tokens: int, output_tokens: int) -> Amounts:
        """Return what a request needs to start with this much output reserved."""
        input_rate, output_rate = self.input_pico_usd or 0, self.output_pico_usd or 0
        money = self.request_pico_usd + input_tokens * input_rate + output_tokens * output_rate
        gpu = input_tokens * self.input_gpu_ns + output_tokens * self.output_gpu_ns
        return amounts_of(1, input_tokens, output_tokens, concurrency=1, gpu_ns=gpu, pico_usd=money)

    def of_more(self, output_tokens: int) -> Amounts:
        """Return what a running request needs to continue for this many more output tokens."""
        gpu, money = output_tokens * self.output_gpu_ns, output_tokens * (self.output_pico_usd or 0)
        return amounts_of(0, output_tokens=output_tokens, gpu_ns=gpu, pico_usd=money)

    def output_within(self, place: int, amount: int) -> int | None:
        """Return how many output tokens an amount of one metric pays for; `None` if output does not use that metric."""
        if place in (OUTPUT, TOKENS):
            return amount
        rate = (self.output_pico_usd or 0) if place == MONEY else self.output_gpu_ns if place == GPU else 0
        return amount // rate if rate else None


def fits(amounts: Amounts, into: Amounts) -> bool:
    """Return whether each amount is at most its bound in `into`."""
    for place, amount in enumerate(amounts):
        if amount > into[place]:
            return False
    return True


FREE: Final = Rates()
NOTHING: Final[Amounts] = amounts_of(0)
ONE_REQUEST: Final[Amounts] = amounts_of(1)
