"""Cost per million tokens on own GPUs, with its uncertainty, compared with a provider's price: host or buy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from analytics.gpu.standard_cost import ModelHour
from contracts.errors import InvalidRequest
from contracts.pricing.prices import AnyCard


@dataclass(frozen=True, slots=True)
class UnitCost:
    """USD per million tokens, input and output in their measured mix; 95 % confidence interval `low` to `high`."""

    model: str
    tokens: int
    usd_per_mtok: Decimal
    low: Decimal
    high: Decimal
    hours: int


@dataclass(frozen=True, slots=True)
class HostOrBuy:
    """Own cost and a provider's price for the same tokens.

    `break_even_utilisation` is the utilisation of the GPUs at which both cost the same, `None` if even full utilisation
    costs more. `is_certain`: the provider's price is outside the confidence interval.
    """

    ours: UnitCost
    provider_version: str
    provider_usd_per_mtok: Decimal
    utilisation: float
    break_even_utilisation: float | None
    is_certain: bool

    @property
    def is_hosting_cheaper(self) -> bool:
        """Return whether own cost is below the provider's price."""
        return self.ours.usd_per_mtok < self.provider_usd_per_mtok


def unit_cost(hours: Sequence[ModelHour], total_pico_usd: int) -> UnitCost:
    """Return the cost per token of one model: the whole cost, including idle time, over all tokens of the hours.

    The interval is the ratio estimator's (Cochran, Sampling Techniques, 3rd edition, section 6.3) over hours with
    Student's t, where each hour has the same cost and its own number of tokens. Raises InvalidRequest for fewer than
    two hours with tokens.
    """
    # Imported here, as it takes nearly a second to load, which would delay every CLI command.
    from scipy.stats import t as student_t  # type: ignore[import-untyped]  # it has no types

    used = [hour for hour in hours if hour.tokens]
    if len(used) < 2:
        raise InvalidRequest("a cost per token needs two hours with tokens or more; take a longer range")
    tokens = sum(hour.tokens for hour in used)
    ratio = total_pico_usd / tokens
    each = total_pico_usd / len(used)
    squares = math.fsum((each - ratio * hour.tokens) ** 2 for hour in used)
    error = math.sqrt(len(used) / (len(used) - 1) * squares) / tokens
    margin = float(student_t.ppf(0.975, len(used) - 1)) * error
    return UnitCost(
        used[0].model,
        tokens,
        _usd_per_mtok(ratio),
        _usd_per_mtok(max(ratio - margin, 0.0)),
        _usd_per_mtok(ratio + margin),
        len(used),
    )


def host_or_buy(hours: Sequence[ModelHour], total_pico_usd: int, utilisation: float, card: AnyCard) -> HostOrBuy:
    """Compare a model's cost with a card's price for the same tokens. `utilisation`: busy over all GPU time, 0 to 1.

    Raises InvalidRequest if the card lacks a price for input or output.
    """
    ours = unit_cost(hours, total_pico_usd)
    asked = 0
    for name, leaf in (
        ("uncached_tokens", "input_text"),
        ("cached_tokens", "cache_read_text"),
        ("output_tokens", "output_text"),
    ):
        count = sum(getattr(hour, name) for hour in hours)
        rate = card.rate(leaf, 0)  # type: ignore[arg-type]  # leaves, as they stand above
        if rate is None and leaf == "cache_read_text":
            rate = card.rate("input_text", 0)  # a seller without a cache charges for all input
        if rate is None:
            raise InvalidRequest(f"card {card.version!r} has no price for {leaf}, so it cannot be compared")
        asked += count * rate
    theirs = _usd_per_mtok(asked / ours.tokens)
    even = utilisation * float(ours.usd_per_mtok / theirs) if theirs else math.inf
    return HostOrBuy(
        ours,
        card.version,
        theirs,
        utilisation,
        even if even <= 1 else None,
        not ours.low <= theirs <= ours.high,
    )


def _usd_per_mtok(pico_usd_per_token: float) -> Decimal:
    return Decimal(round(pico_usd_per_token)).scaleb(-6)
