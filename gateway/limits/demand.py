"""What one request asks of every kind of limit, before it runs and after: one amount a metric."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from contracts.rules.limits import METRICS

# In the order of METRICS. As a tuple, since the hot path looks up a counter's amount by its metric's place.
Amounts: TypeAlias = tuple[int, ...]

REQUESTS, INPUT, OUTPUT, TOKENS, CONCURRENCY, GPU, MONEY = range(len(METRICS))
PLACE: Final = {metric: place for place, metric in enumerate(METRICS)}


@dataclass(frozen=True, slots=True)
class Rates:
    """What a token costs before it is known which kind of token it will be: upper figures, GPU time estimated.

    Pico-USD and GPU nanoseconds per token; `None` money: the model has no price for this tenant.
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
        """Return what a request needs to begin with this much output in view."""
        input_rate, output_rate = self.input_pico_usd or 0, self.output_pico_usd or 0
        money = self.request_pico_usd + input_tokens * input_rate + output_tokens * output_rate
        gpu = input_tokens * self.input_gpu_ns + output_tokens * self.output_gpu_ns
        return (1, input_tokens, output_tokens, input_tokens + output_tokens, 1, gpu, money)

    def of_more(self, output_tokens: int) -> Amounts:
        """Return what a running request needs to go on for this many more output tokens."""
        return (
            0,
            0,
            output_tokens,
            output_tokens,
            0,
            output_tokens * self.output_gpu_ns,
            output_tokens * (self.output_pico_usd or 0),
        )

    def output_within(self, place: int, amount: int) -> int | None:
        """Return how many output tokens an amount of one metric pays for; `None` if output does not use it up."""
        if place in (OUTPUT, TOKENS):
            return amount
        rate = (self.output_pico_usd or 0) if place == MONEY else self.output_gpu_ns if place == GPU else 0
        return amount // rate if rate else None


def fits(amounts: Amounts, into: Amounts) -> bool:
    """Return whether no amount is above what it has to fit into."""
    for place, amount in enumerate(amounts):
        if amount > into[place]:
            return False
    return True


FREE: Final = Rates()
NOTHING: Final[Amounts] = (0,) * len(METRICS)
