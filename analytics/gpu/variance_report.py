"""Variances of all self-hosted models with a fitted card, over the last whole hours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.gpu.cost import BUSY_LINES, GpuCost, device_models, gpu_cost
from analytics.gpu.ledger import gpu_ledger
from analytics.gpu.publishing import FITTED, fitted_card_row
from analytics.gpu.standard_cost import model_hours
from analytics.gpu.variance import CostVariance, Standard, cost_variance
from analytics.query_time import QueryTime
from analytics.scope import Period
from backends.control.prices import card_of_standard_cost
from backends.control.rates import load_rates
from backends.store.client import StoreClient
from contracts.control import StandardCost
from contracts.errors import InvalidRequest
from contracts.pricing.rates import RateBook


@dataclass(frozen=True, slots=True)
class Standards:
    """The fitted cards valid at a time, by model, and GPU rates; compared by versions, which never change.

    `unfit` are models whose card has no evidence to explain a variance.
    """

    cards: Mapping[str, Standard] = field(compare=False, repr=False)
    rates: RateBook = field(compare=False, repr=False)
    known_by: tuple[str, ...]
    unfit: tuple[str, ...] = ()


def standards(session: Session, asked: QueryTime) -> Standards:
    """Read the valid fitted cards and GPU rates from the control database."""
    models = sorted(set(session.scalars(select(StandardCost.model).where(StandardCost.origin == FITTED))))
    cards: dict[str, Standard] = {}
    unfit = []
    for model in models:
        row = fitted_card_row(session, model, asked.moment)
        if row is None:
            continue
        try:
            cards[model] = Standard.from_evidence(card_of_standard_cost(row), row.evidence)
        except InvalidRequest:
            unfit.append(model)
    rates = load_rates(session)
    known_by = (*(standard.card.version for standard in cards.values()), repr(rates))
    return Standards(cards, rates, known_by, tuple(unfit))


def last_hours(asked: QueryTime, hours: int) -> Period:
    """Return the range of the last `hours` whole hours."""
    end = asked.moment.replace(minute=0, second=0, microsecond=0)
    return Period(end - timedelta(hours=hours), end)


def variance_report(
    store: StoreClient, known: Standards, asked: QueryTime, hours: int = 24
) -> tuple[CostVariance, ...]:
    """Return each model's variance, as `tollkeeper gpu variance` prints it. Raises StoreUnavailable."""
    period = last_hours(asked, hours)
    if not known.cards:
        return ()
    ledger, models = gpu_ledger(store, period), device_models(store, period)
    cost = gpu_cost(ledger, {}, known.rates, models, "platform")
    found = []
    for model, standard in known.cards.items():
        busy, other = busy_and_other(cost, model)
        of_model = model_hours(store, period, model)
        found.append(cost_variance(of_model, standard, busy, other, period.end - period.start))
    return tuple(found)


def busy_and_other(cost: GpuCost, model: str) -> tuple[int, int]:
    """Return a model's cost in pico-USD: of the GPU time that served its requests, and of all its other GPU time."""
    lines = cost.models_pico_usd.get(model, {})
    busy = sum(lines.get(line, 0) for line in BUSY_LINES if line != "recompute_ns")
    return busy, sum(lines.values()) - busy
