"""Standard against actual for every model of our own that has a fitted card: over the last whole hours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.asked_at import AskedAt
from analytics.gpu.cost import BUSY_LINES, GpuCost, device_models, gpu_cost
from analytics.gpu.ledger import gpu_ledger
from analytics.gpu.publishing import FITTED, fitted_card_row
from analytics.gpu.standard_cost import model_hours
from analytics.gpu.variance import CostVariance, Standard, cost_variance
from analytics.scope import Period
from backends.control.prices import card_of_standard_cost
from backends.control.rates import load_rates
from backends.store.client import StoreClient
from contracts.control import StandardCost
from contracts.errors import InvalidRequest
from contracts.pricing.rates import RateBook


@dataclass(frozen=True, slots=True)
class Standards:
    """The fitted cards that hold at a moment, by model, and the rates of GPUs; known by versions, which never change.

    `unfit` are models whose card lacks what explains a variance.
    """

    cards: Mapping[str, Standard] = field(compare=False, repr=False)
    rates: RateBook = field(compare=False, repr=False)
    known_by: tuple[str, ...]
    unfit: tuple[str, ...] = ()


def standards(session: Session, asked: AskedAt) -> Standards:
    """Read the fitted cards and the rates."""
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


def last_hours(asked: AskedAt, hours: int) -> Period:
    """Return the last the given number of whole hours."""
    end = asked.moment.replace(minute=0, second=0, microsecond=0)
    return Period(end - timedelta(hours=hours), end)


def variance_report(store: StoreClient, known: Standards, asked: AskedAt, hours: int = 24) -> tuple[CostVariance, ...]:
    """Explain each model's cost, as `tollkeeper gpu variance MODEL --hours HOURS` does. Raises StoreUnavailable."""
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
    """Return what a model's requests' GPU time cost, and all else, in pico-USD."""
    lines = cost.models_pico_usd.get(model, {})
    busy = sum(lines.get(line, 0) for line in BUSY_LINES if line != "recompute_ns")
    return busy, sum(lines.values()) - busy
