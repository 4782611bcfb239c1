"""Savings in a range: by prompt caches, by batches, and by cached responses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from analytics.attribution.savings import CacheSaving, cache_savings
from analytics.cost.question import CostQuestion
from analytics.gpu.standard_cost import model_hours
from analytics.prices.card_list import CardList
from analytics.prices.repricing import card_for, price_group
from analytics.prices.usage_groups import UsageGroup, usage_groups
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import PermissionDenied
from contracts.pricing.prices import PriceBook

_LEVELS: Final = ("tenant", "team", "project", "key", "model")
Payer = tuple[str, str]  # tenant, model


@dataclass(frozen=True, slots=True)
class BatchSaving:
    """Savings of one tenant's batches of a model against individual requests at the same price card."""

    tenant: str
    model: str
    requests: int
    at_once_pico_usd: int
    paid_pico_usd: int

    @property
    def saved_pico_usd(self) -> int:
        """Return the saving in pico-USD."""
        return self.at_once_pico_usd - self.paid_pico_usd


@dataclass(frozen=True, slots=True)
class AnswerSaving:
    """Savings of responses served from the gateway's cache.

    `estimated_pico_usd`: the mean cost of as many requests of the same tenant to the same model, minus the cost of the
    cached responses; `None` if no such request has a price.
    """

    tenant: str
    model: str
    answers: int
    paid_pico_usd: int
    estimated_pico_usd: int | None


@dataclass(frozen=True, slots=True)
class SavedReport:
    """All savings of a range, each kind largest first. Those of cached responses are estimates, the others exact."""

    caches: tuple[CacheSaving, ...]
    batches: tuple[BatchSaving, ...]
    answers: tuple[AnswerSaving, ...]

    @property
    def caches_pico_usd(self) -> int:
        """Return the total saving by prompt caches, net of the cost of cache writes, in pico-USD."""
        return sum(one.net_pico_usd for one in self.caches)

    @property
    def batches_pico_usd(self) -> int:
        """Return the total saving by batches in pico-USD."""
        return sum(one.saved_pico_usd for one in self.batches)

    @property
    def answers_pico_usd(self) -> int:
        """Return the total estimated saving by cached responses in pico-USD, without those that have no estimate."""
        return sum(one.estimated_pico_usd or 0 for one in self.answers)


def saved_report(store: StoreClient, question: CostQuestion, cards: CardList) -> SavedReport:
    """Return the savings in a question's range; its levels are ignored. Raises InvalidRequest if requests have expired.

    Reads single requests, not rollups: takes seconds for millions of them.
    """
    asked = CostQuestion(
        question.start,
        question.end,
        by=_LEVELS,
        zone=question.zone,
        tenant=question.tenant,
        team=question.team,
        project=question.project,
        model=question.model,
        asked_at=question.asked_at,
    )
    groups = usage_groups(store, asked, cards.cards)
    book = PriceBook(cards.cards)
    rates = _prefill_rates(store, asked, groups)
    return SavedReport(tuple(cache_savings(groups, book, rates)), batch_savings(groups, book), answer_savings(groups))


def batch_savings(groups: Iterable[UsageGroup], book: PriceBook) -> tuple[BatchSaving, ...]:
    """Return the savings by batches by tenant and model, largest first, without groups that no card prices."""
    found: dict[Payer, list[int]] = {}
    for group in groups:
        card = card_for(group, book) if group.is_batch else None
        if card is None:
            continue
        whole = book.card_for(group.model, group.tenant, group.at, group.provider, group.region)
        at_once, paid = price_group(group, whole).total_pico_usd, price_group(group, card).total_pico_usd
        if at_once is None or paid is None:
            continue
        sums = found.setdefault((group.tenant, group.model), [0, 0, 0])
        for place, value in enumerate((group.requests, at_once, paid)):
            sums[place] += value
    savings = [BatchSaving(*name, *sums) for name, sums in found.items()]
    return tuple(sorted(savings, key=lambda one: (-one.saved_pico_usd, one.tenant, one.model)))


def answer_savings(groups: Sequence[UsageGroup]) -> tuple[AnswerSaving, ...]:
    """Return the savings by cached responses by tenant and model, largest estimate first."""
    asked: dict[Payer, list[int]] = {}
    kept: dict[Payer, list[int]] = {}
    for group in groups:
        sums = (kept if group.is_kept_answer else asked).setdefault((group.tenant, group.model), [0, 0])
        sums[0] += group.requests if group.is_kept_answer else group.priced_requests
        sums[1] += group.cost_pico_usd
    savings = []
    for name, (answers, paid) in kept.items():
        requests, cost = asked.get(name, (0, 0))
        estimate = None if not requests else round(Fraction(answers * cost, requests)) - paid
        savings.append(AnswerSaving(*name, answers, paid, estimate))
    return tuple(sorted(savings, key=lambda one: (-(one.estimated_pico_usd or 0), one.tenant, one.model)))


def _prefill_rates(store: StoreClient, question: CostQuestion, groups: Iterable[UsageGroup]) -> dict[str, float]:
    """Return the prefill time per uncached token in ns, by self-hosted model; {} if the viewer may not see it."""
    if not any(group.is_engine for group in groups):
        return {}
    try:
        hours = model_hours(store, Period(question.start, question.end), question.model)
    except PermissionDenied:  # it is measured over all tenants, but the viewer may see only one
        return {}
    sums: dict[str, list[int]] = {}
    for hour in hours:
        one = sums.setdefault(hour.model, [0, 0])
        one[0] += hour.prefill_ns
        one[1] += hour.uncached_tokens
    return {model: took / tokens for model, (took, tokens) in sums.items() if tokens}
