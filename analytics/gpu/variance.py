"""Explains the variance of a model's actual GPU cost from its standard cost, in parts that sum to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from analytics.gpu.standard_cost import ModelHour
from contracts.errors import InvalidRequest
from contracts.pricing.money import usd
from contracts.pricing.prices import StandardCostCard


@dataclass(frozen=True, slots=True)
class Standard:
    """A card's rates, and the conditions of its fit (see `StandardFit`)."""

    card: StandardCostCard
    overhead: float
    cached_share: float
    overhead_pico_usd_per_hour: int

    @classmethod
    def from_evidence(cls, card: StandardCostCard, evidence: Mapping[str, object]) -> "Standard":
        """Parse the evidence stored with a fitted card. Raises InvalidRequest for a card that was not fitted."""
        try:
            return cls(
                card,
                float(str(evidence["overhead"])),
                float(str(evidence["cached_share"])),
                int(str(evidence["overhead_pico_usd_per_hour"])),
            )
        except (KeyError, ValueError) as error:
            raise InvalidRequest(
                f"card {card.version!r} was not fitted, so nothing is known to explain a variance by; "
                "tollkeeper gpu fit makes one"
            ) from error


@dataclass(frozen=True, slots=True)
class CostVariance:
    """Actual minus standard cost in pico-USD; positive if the GPUs cost more than was charged.

    `co_tenancy`: requests took more (or less) GPU time than by the card's rates, because they shared batches less (or
    more) than when it was fitted. `idle`: idle and wasted time cost more than planned. `volume`: the planned idle time
    was spread over fewer tokens. `cache`: more of the input came from a cache, so it paid less of the planned idle
    time. The four sum to `total`.
    """

    model: str
    standard_pico_usd: int
    actual_pico_usd: int
    co_tenancy: int
    idle: int
    volume: int
    cache: int

    @property
    def total(self) -> int:
        """Return actual minus standard cost, in pico-USD."""
        return self.actual_pico_usd - self.standard_pico_usd


def cost_variance(
    hours: Sequence[ModelHour], standard: Standard, busy_pico_usd: int, other_pico_usd: int, length: timedelta
) -> CostVariance:
    """Return a model's variance. `busy_pico_usd`: cost of its requests' GPU time; `other_pico_usd`: all other."""
    card = standard.card
    uncached, cached, output = (
        sum(getattr(hour, name) for hour in hours) for name in ("uncached_tokens", "cached_tokens", "output_tokens")
    )
    charged = uncached * card.input_rate + cached * card.cached_input_rate + output * card.output_rate
    # In the mix of the fit: the same input, with the share from the cache of that time.
    planned_cached = round((uncached + cached) * standard.cached_share)
    planned_uncached = uncached + cached - planned_cached
    planned = planned_uncached * card.input_rate + planned_cached * card.cached_input_rate + output * card.output_rate
    absorbed = _overhead_part(charged, standard.overhead)
    planned_absorbed = _overhead_part(planned, standard.overhead)
    budget = round(standard.overhead_pico_usd_per_hour * length.total_seconds() / 3600)
    return CostVariance(
        model=card.model,
        standard_pico_usd=charged,
        actual_pico_usd=busy_pico_usd + other_pico_usd,
        co_tenancy=busy_pico_usd - (charged - absorbed),
        idle=other_pico_usd - budget,
        volume=budget - planned_absorbed,
        cache=planned_absorbed - absorbed,
    )


def _overhead_part(charged: int, overhead: float) -> int:
    return round(charged * overhead / (1 + overhead))


def variance_as_json(variance: CostVariance) -> dict[str, object]:
    """Return a variance with money as decimal text."""
    names = ("co_tenancy", "idle", "volume", "cache", "total")
    return {
        "model": variance.model,
        "standard_usd": format(usd(variance.standard_pico_usd), "f"),
        "actual_usd": format(usd(variance.actual_pico_usd), "f"),
        **{f"{name}_usd": format(usd(getattr(variance, name)), "f") for name in names},
    }
