"""Changes of list prices are found by card, kept with their percentage, and costed at a month's usage."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from analytics.prices.listing import SoldModel, adjusted, listed_cards
from analytics.prices.refresh import ChangeCost, change_costs, price_changes, rates_changed
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.pricing.prices import PriceCard
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SOLD = SoldModel("claude", "anthropic", "anthropic/claude-sonnet-4-5", "litellm")


def as_listed() -> PriceCard:
    return next(card for card in listed_cards(SOLD, None) if card.is_valid_at(NOW))


def earlier(card: PriceCard) -> PriceCard:
    """The card as an earlier list had it: input at twice the price."""
    rates = {**card.rates, "input_text": card.rates["input_text"] * 2}
    return replace(card, rates=rates, version=card.version.replace("genai-prices-", "genai-prices-0.0.", 1))


def test_a_card_as_the_list_has_it_is_no_change() -> None:
    assert price_changes([SOLD], [as_listed()], None, NOW) == ([], [])


def test_a_change_replaces_the_card_from_now_on() -> None:
    old = earlier(as_listed())
    (change,), refused = price_changes([SOLD], [old], None, NOW)
    assert not refused and change.old is old
    assert (change.new.valid_from, change.new.valid_to) == (NOW, old.valid_to)
    assert change.new.rates == as_listed().rates and change.new.version != old.version
    assert rates_changed(change) == "input_text 6 -> 3"


def test_a_tenants_percentage_is_kept() -> None:
    old = adjusted(earlier(as_listed()), "acme", -10)
    (change,), _ = price_changes([SOLD], [old], None, NOW)
    assert change.new.tenant == "acme" and rates_changed(change) == "input_text 5.4 -> 2.7"


def test_a_version_that_is_taken_is_marked_with_the_day() -> None:
    ended = replace(as_listed(), valid_to=NOW - timedelta(days=1))
    (change,), _ = price_changes([SOLD], [ended, earlier(as_listed())], None, NOW)
    assert change.new.version == f"{ended.version}~2026-11-28"
    again = replace(change.new, rates=change.old.rates)  # and such a card is still known as the list's
    assert len(price_changes([SOLD], [again], None, NOW)[0]) == 1


@pytest.mark.parametrize("changes", [{"version": "our-own/claude"}, {"valid_to": NOW}, {"provider": "elsewhere"}])
def test_cards_of_ones_own_and_ended_ones_are_left_alone(changes: dict[str, Any]) -> None:
    assert price_changes([SOLD], [replace(earlier(as_listed()), **changes)], None, NOW) == ([], [])


def test_a_model_that_the_list_no_longer_has_keeps_its_card_and_says_so() -> None:
    gone = replace(SOLD, upstream="anthropic/claude-gone-1")
    changes, (why,) = price_changes([gone], [earlier(as_listed())], None, NOW)
    assert not changes and "is unchanged" in why and "claude-gone-1" in why


def test_a_change_is_costed_for_the_requests_that_its_card_prices(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    model, own = f"claude-{uuid4().hex[:8]}", f"tenant-{uuid4().hex[:8]}"
    day = datetime(2053, 3, 1, tzinfo=UTC)
    sold = replace(SOLD, model=model)
    listed = next(card for card in listed_cards(sold, None) if card.is_valid_at(day))
    old = earlier(listed)
    agreed = replace(old, version="agreed", tenant=own)

    def used(tenant: str, **more: Any) -> RequestRecord:
        usage = Usage(input_text=100_000, output_text=0)
        return request(day, who=Identity(tenant), model=model, provider="anthropic", usage=usage, **more)

    record([used("acme", cost_pico_usd=1), used("acme"), used(own, cost_pico_usd=1)])
    known = [old, agreed]
    changes, _ = price_changes([sold], known, None, day)
    costs = change_costs(reader, changes, known, Period(day, day + timedelta(days=1)), day + timedelta(days=20))
    dime = 10**11
    assert costs == {old.version: ChangeCost(2, 12 * dime, 6 * dime)}  # as they would cost, not as recorded
    assert costs[old.version].difference_pico_usd == -6 * dime
