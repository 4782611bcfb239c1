"""Read the evidence for recommendations: usage by tenant and model, and replicas by hour."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from analytics.forecast.history import PICO
from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from analytics.scope import Period
from backends.store.client import Row, StoreClient
from contracts.pricing.prices import AnyCard
from contracts.serving.rollouts import PLATFORM_TENANT

_MOST_LINES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """Some requests: how many, what they cost in pico-USD, and their tokens: uncached input, cached input, output."""

    requests: int
    pico_usd: int
    fresh: int
    cached: int
    produced: int

    def at(self, card: AnyCard) -> int | None:
        """Price it with a card, in pico-USD; `None` if the card does not say, or says it by a request's length."""
        total = self.requests * card.request_pico_usd
        for leaf, tokens in (
            ("input_text", self.fresh),
            ("cache_read_text", self.cached),
            ("output_text", self.produced),
        ):
            rate = card.rate(leaf, None)  # type: ignore[arg-type]  # three of its names
            if rate is None and leaf == "cache_read_text":
                rate = card.rate("input_text", None)  # a provider without a price for hits bills them as input
            if rate is None:
                if tokens:
                    return None
                continue
            total += tokens * rate
        return total


@dataclass(frozen=True, slots=True)
class Use:
    """A tenant's use of a model at a provider, and of it what is small, what nobody waits for, what was sent again."""

    tenant: str
    model: str
    provider: str
    all: Part
    small: Part
    patient: Part
    repeated_tokens: int
    later_turns: int


@dataclass(frozen=True, slots=True)
class ReplicaHour:
    """One hour of a replica: which share of it a step was busy, and how many requests waited at most."""

    model: str
    replica: str
    hour: int
    busy_share: float
    waiting: int
    ranks: int


def read_uses(store: StoreClient, period: Period, tenant: str | None = None) -> list[Use]:
    """Read the use of a period, the most expensive first. Raises StoreUnavailable.

    Copies to a rollout's candidate are left out: they are asked for by the rollout, whatever they cost.
    """
    parameters = {"start": period.start_s, "end": period.end_s, "tenant": tenant, "row_limit": _MOST_LINES}
    uses = (_use(row) for row in store.query(query("saving_evidence"), parameters))
    return [use for use in uses if use.tenant != PLATFORM_TENANT]


def read_replica_hours(store: StoreClient, period: Period) -> list[ReplicaHour]:
    """Read how busy replicas were. They are the platform's: an engine serves all tenants. Raises StoreUnavailable."""
    rows = store.query(query("replica_hours"), {"start": period.start_s, "end": period.end_s})
    return [
        ReplicaHour(
            text_of(row["model_label"]),
            text_of(row["replica_label"]),
            number_of(row["hour_start"]),
            number_of(row["busy_sum"]) / 3.6e12,
            number_of(row["waiting_most"]),
            max(int(float(str(row["ranks"]))), 1),
        )
        for row in rows
    ]


def _use(row: Row) -> Use:
    return Use(
        tenant=text_of(row["tenant_label"]),
        model=text_of(row["model_label"]),
        provider=text_of(row["provider_label"]),
        all=_part(row, "request_count", "cost_sum", "fresh_sum", "cached_sum", "produced_sum"),
        small=_part(row, "small_count", "small_cost", "small_fresh", "small_cached", "small_produced"),
        patient=_part(row, "patient_count", "patient_cost", "patient_fresh", "patient_cached", "patient_produced"),
        repeated_tokens=number_of(row["repeated_sum"]),
        later_turns=number_of(row["later_turns"]),
    )


def _part(row: Mapping[str, object], *names: str) -> Part:
    requests, cost, fresh, cached, produced = names
    return Part(
        number_of(row[requests]),
        int(money_of(row[cost]) * PICO),
        number_of(row[fresh]),
        number_of(row[cached]),
        number_of(row[produced]),
    )
