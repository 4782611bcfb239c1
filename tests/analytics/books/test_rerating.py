"""Rerating, whose arithmetic the store does, asks for each group what cards ask for each request, to the pico-USD."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.books import class_prices
from analytics.books.calendars import Calendars
from analytics.books.rerating import RerateQuestion, rerate
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import INPUT_LEAVES, LEAVES, OUTPUT_LEAVES, Leaf, Usage
from contracts.pricing.book_entries import EFFECT_FIELDS
from contracts.pricing.prices import AnyCard, PriceCard, StandardCostCard, Tier, cost_of, is_billable
from contracts.recording.records import RequestRecord
from contracts.rules.periods import zone_of
from tests.analytics.cost.records import request

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = {"acme": "Europe/Berlin", "globex": "UTC"}
MODELS = ("llama", "qwen", "without")
_PLAIN: Leaf = "input_text"
_WRITES: tuple[Leaf, ...] = ("cache_write_5m", "cache_write_1h")

rates = st.dictionaries(st.sampled_from(LEAVES), st.integers(0, 10**20), max_size=len(LEAVES))
counts = st.none() | st.sampled_from([0, 1, 7, 1_000, 1_001, 4_294_967])
usages = st.builds(Usage, **dict.fromkeys(LEAVES, counts))


@pytest.fixture(scope="module")
def free_days() -> Iterator[date]:
    return (date(2048, 1, 1) + timedelta(days=4 * number) for number in count())


@st.composite
def books_of_cards(draw: st.DrawFn, midnight: datetime) -> list[AnyCard]:
    """Cards with any rates: one ends at a midnight, one begins there, one each is of a tenant, provider and region."""

    def card(number: int, **fields: Any) -> PriceCard:
        tiers = draw(st.sampled_from([(), (Tier(1_000, draw(rates), {"flex": draw(rates)}),)]))
        values: dict[str, Any] = {"model": "llama", "valid_from": LONG_AGO, **fields}
        return PriceCard(
            version=f"{number}/{uuid4()}",
            rates=draw(rates),
            tiers=tiers,
            request_pico_usd=draw(st.sampled_from([0, 10**9])),
            service_tiers=draw(st.sampled_from([{}, {"batch": draw(rates)}, {"*": draw(rates)}])),
            **values,
        )

    return [
        card(1, valid_to=midnight),
        card(2, valid_from=midnight),
        card(3, tenant="globex"),
        card(4, provider="elsewhere", valid_to=midnight),
        card(5, region="eu", valid_from=midnight),
        StandardCostCard("qwen", f"6/{uuid4()}", LONG_AGO, 111, 22, 333),
    ]


@st.composite
def recorded(draw: st.DrawFn, midnight: datetime) -> RequestRecord:
    """A request around a midnight, with whatever a record can say of its cost."""
    cost = draw(st.none() | st.integers(0, 10**15))
    outcome = draw(st.sampled_from(["ok", "ok", "error", "cancelled", "rejected"]))
    is_free = outcome == "error" and draw(st.booleans())
    return request(
        midnight,
        started_at_ns=int(midnight.timestamp()) * 10**9 + draw(st.sampled_from([-1, 0, 1, -30 * 3600 * 10**9])),
        who=Identity(draw(st.sampled_from(sorted(ZONES))), team=draw(st.sampled_from(["", "red"]))),
        model=draw(st.sampled_from(MODELS)),
        provider=draw(st.sampled_from(["any", "elsewhere", "engine"])),
        region=draw(st.sampled_from(["", "eu", "us"])),
        usage=draw(usages),
        outcome=outcome,
        operation=draw(st.sampled_from(["chat", "embeddings"])),
        cost_pico_usd=0 if is_free else cost,
        cost_basis="free" if is_free else "price_card" if cost is not None else "unpriced",
        price_version=draw(st.sampled_from(["", "old", "old#batch"])),
        service_tier=draw(st.sampled_from(["", "flex", "batch"])),
        unpriced_leaves=draw(st.sampled_from([[], ["cache_read_text", "output_image"]])),
        count_method=draw(st.sampled_from(["exact", "estimate"])),
        cache=draw(st.sampled_from(["", "", "hit"])),
    )


def expected(
    records: list[RequestRecord], cards: list[AnyCard], candidate: AnyCard | None
) -> dict[tuple[Any, ...], list[int]]:
    """Each request priced by itself: by group its number, what was recorded and the seven differences."""
    found: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * (2 + len(EFFECT_FIELDS)))
    for one in records:
        usage = one.usage
        at = datetime.fromtimestamp(one.started_at_ns // 10**9, UTC)  # no card begins within a second
        is_failed = one.cost_basis == "free"
        if one.outcome == "rejected" or is_failed or one.cache == "hit" or not is_billable(usage, one.operation):
            continue
        if candidate is None:
            card = chosen(cards, one, at)
        else:
            card = candidate if fits(candidate, one) else None
        if card is None:
            continue
        tier = one.service_tier or ("batch" if one.price_version.endswith("#batch") else "")
        card = card.at_tier(tier)
        if card is None:
            continue
        tokens = dict(zip(LEAVES, (getattr(usage, leaf) or 0 for leaf in LEAVES), strict=True))
        sold = dict(tokens)
        if one.provider == "engine":  # its writes are input where the card has no price for them
            for leaf in _WRITES:
                if (
                    card.rate(leaf, usage.input_tokens) is None
                    and card.rate("input_text", usage.input_tokens) is not None
                ):
                    sold[leaf], sold["input_text"] = 0, sold["input_text"] + sold[leaf]
        cost = cost_of(Usage(**sold), _AtInput(card, usage.input_tokens))
        if cost.total_pico_usd is None:
            continue
        was = one.cost_pico_usd
        was_missing = LEAVES if was is None else one.unpriced_leaves
        was_partly = was is not None and bool(one.unpriced_leaves)
        gone = [(leaf, tokens[leaf]) for leaf in was_missing]
        still = [(leaf, tokens[leaf]) for leaf in cost.unpriced]
        amount = cost.total_pico_usd - (was or 0)
        zone = zone_of(ZONES[one.who.tenant])
        day = at.astimezone(zone).date()
        start, end = (datetime.combine(day + timedelta(n), time.min, zone).timestamp() for n in (0, 1))
        middle = datetime.fromtimestamp((start + end) // 2, UTC)
        name = (one.who.tenant, one.who.team, "", "", one.model, one.provider, one.price_version, middle)
        is_estimated = one.count_method == "estimate"
        differences = [
            1,
            was or 0,
            amount,
            -int(was is None),
            int(bool(cost.unpriced)) - int(was_partly),
            sum(n for leaf, n in still if leaf in INPUT_LEAVES) - sum(n for leaf, n in gone if leaf in INPUT_LEAVES),
            sum(n for leaf, n in still if leaf in OUTPUT_LEAVES) - sum(n for leaf, n in gone if leaf in OUTPUT_LEAVES),
            amount if is_estimated else 0,
            int(was is None and is_estimated),
        ]
        found[name] = [a + b for a, b in zip(found[name], differences, strict=True)]
    return dict(found)


class _AtInput:
    """A card at a request's own input, whatever kind its tokens are sold as."""

    def __init__(self, card: AnyCard, input_tokens: int | None) -> None:
        self._card, self._input = card, input_tokens
        self.version, self.basis, self.request_pico_usd = card.version, card.basis, card.request_pico_usd

    def rate(self, leaf: Any, input_tokens: int | None) -> int | None:
        return self._card.rate(leaf, self._input)


def fits(card: AnyCard, one: RequestRecord) -> bool:
    mine = (card.tenant in ("", one.who.tenant), card.provider in ("", one.provider), card.region in ("", one.region))
    return card.model == one.model and all(mine)


def chosen(cards: list[AnyCard], one: RequestRecord, at: datetime) -> AnyCard | None:
    holding = [card for card in cards if fits(card, one) and card.is_valid_at(at)]
    return max(holding, key=lambda card: (card.tenant != "", card.provider != "", card.region != ""), default=None)


@pytest.mark.parametrize("classes_at_once", [class_prices.CLASSES_AT_ONCE, pytest.param(2, marks=pytest.mark.drill)])
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_store_prices_groups_as_each_request_is_priced(
    reader: StoreClient,
    record: Any,
    free_days: Iterator[date],
    classes_at_once: int,
    data: st.DataObject,
) -> None:
    day = next(free_days) + timedelta(days=2)
    midnight = datetime.combine(day, time.min, UTC)
    cards = data.draw(books_of_cards(midnight))
    records = data.draw(st.lists(recorded(midnight), min_size=1, max_size=12))
    candidate = data.draw(st.none() | st.sampled_from(cards))
    record(records)
    calendars = Calendars({tenant: zone_of(name) for tenant, name in ZONES.items()})
    question = RerateQuestion(day - timedelta(2), day + timedelta(2), midnight + timedelta(9), card=candidate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_prices, "CLASSES_AT_ONCE", classes_at_once)
        found = rerate(reader, question, cards, calendars)
    assert {
        tuple(group): [one.requests, one.recorded_pico_usd, *(getattr(one.effect, name) for name in EFFECT_FIELDS)]
        for group, one in found.items()
    } == expected(records, cards, candidate)
