"""Prices by class of requests: the rate of each kind of token, as columns that the store joins with requests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from analytics.cost.question import CostQuestion
from analytics.prices.repricing import is_for, rates_of
from analytics.prices.usage_groups import changes_ns, moment_in, own_regions, thresholds_of
from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import Row, StoreClient
from contracts.pricing.prices import AnyCard, PriceBook

# Limit per query: the columns are parameters in its URL, which the store limits to a megabyte.
CLASSES_AT_ONCE: Final = 400


@dataclass(frozen=True, slots=True)
class PriceClass:
    """A class of requests that have the same prices on all cards. `tenant`, `provider` and `region` are "" if no card
    is specific to them.

    `input_tokens`: a value in the same price tier as theirs; `at`: a time at which the same cards are valid.
    """

    tenant: str
    model: str
    provider: str
    region: str
    tier: str
    is_engine: bool
    tier_number: int
    segment: int
    input_tokens: int
    at: datetime


def price_parameters(question: CostQuestion, cards: Sequence[AnyCard]) -> dict[str, object]:
    """Return the parameters that define the classes in queries. Raises InvalidRequest if the cards need too many."""
    return {
        "own_tenants": sorted({card.tenant for card in cards if card.tenant}),
        "own_providers": sorted({card.provider for card in cards if card.provider}),
        "own_regions": own_regions(cards),
        "thresholds": thresholds_of(cards),
        "changes": changes_ns(cards, question),
        "tenant": question.tenant,
        "model": question.model,
    }


def class_columns(
    store: StoreClient,
    question: CostQuestion,
    parameters: Mapping[str, object],
    candidate: AnyCard | None,
    book: PriceBook,
) -> Iterator[dict[str, object]]:
    """Yield the priced classes of a question's requests, as chunks of columns for `rerated_usage.sql`.

    `candidate` prices all requests that it applies to; without one, the valid card of `book` does. `parameters`: those
    of `price_parameters`, and the range. Raises StoreUnavailable.
    """
    priced: list[tuple[PriceClass, list[int], int]] = []
    for row in store.query(query("price_classes"), parameters):
        one = _class(row, question, parameters)
        card = _card(one, candidate, book)
        if card is not None:
            rates = [
                -1 if rate is None else rate for _, rate in rates_of(card, one.input_tokens, is_engine=one.is_engine)
            ]
            priced.append((one, rates, card.request_pico_usd))
    for first in range(0, len(priced), CLASSES_AT_ONCE):
        part = priced[first : first + CLASSES_AT_ONCE]
        classes = [one for one, _, _ in part]
        yield {
            "class_tenants": [one.tenant for one in classes],
            "class_models": [one.model for one in classes],
            "class_providers": [one.provider for one in classes],
            "class_regions": [one.region for one in classes],
            "class_service_tiers": [one.tier for one in classes],
            "class_engines": [int(one.is_engine) for one in classes],
            "class_tiers": [one.tier_number for one in classes],
            "class_segments": [one.segment for one in classes],
            "class_rates": [rates for _, rates, _ in part],
            "class_fees": [fee for _, _, fee in part],
        }


def _class(row: Row, question: CostQuestion, parameters: Mapping[str, object]) -> PriceClass:
    number, segment = number_of(row["tier_number"]), number_of(row["segment"])
    thresholds, changes = parameters["thresholds"], parameters["changes"]
    assert isinstance(thresholds, list) and isinstance(changes, list)
    return PriceClass(
        text_of(row["class_tenant"]),
        text_of(row["class_model"]),
        text_of(row["class_provider"]),
        text_of(row["class_region"]),
        text_of(row["class_service_tier"]),
        bool(number_of(row["class_is_engine"])),
        number,
        segment,
        thresholds[number - 1] + 1 if number else 0,
        moment_in(segment, question, changes),
    )


def _card(one: PriceClass, candidate: AnyCard | None, book: PriceBook) -> AnyCard | None:
    if candidate is None:
        card = book.card_for(one.model, one.tenant, one.at, one.provider, one.region)
    else:
        card = candidate if is_for(candidate, one) else None
    return None if card is None else card.at_tier(one.tier)
