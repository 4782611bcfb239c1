"""Repricing: the cards a row was priced by give back its recorded pico-dollars, others what each row would cost."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.prices.repricing import reprice
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.metering.usage import Leaf, Usage
from contracts.pricing.prices import AnyCard, NewPrice, PriceBook, StandardCostCard, bill, price_card
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

Record = Callable[[Sequence[RequestRecord]], None]
NOON = datetime(2055, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def free_days() -> Iterator[datetime]:
    return (datetime(2056, 1, 1, tzinfo=UTC) + timedelta(days=2 * number) for number in count())


def cards_from(midnight: datetime) -> list[AnyCard]:
    """Cards of which one ends at a midnight, one has tiers and batch prices, one is a tenant's and one our own."""
    old: dict[Leaf, Decimal] = {"input_text": Decimal(3), "output_text": Decimal(15), "cache_read_text": Decimal("0.3")}
    new: dict[Leaf, Decimal] = {
        "input_text": Decimal(2),
        "output_text": Decimal("10.123456"),
        "cache_read_text": Decimal("0.2"),
        "images": Decimal(40_000),
    }
    return [
        price_card(
            NewPrice("llama", "llama/old", old, valid_to=midnight, batch_usd_per_mtok={"input_text": Decimal("1.5")})
        ),
        price_card(
            NewPrice(
                "llama",
                "llama/new",
                new,
                valid_from=midnight,
                tiers=[(200_000, {"input_text": Decimal(4), "output_text": Decimal(20)})],
                usd_per_request=Decimal("0.0001"),
            )
        ),
        price_card(
            NewPrice("llama", "llama/globex", {"input_text": Decimal(1), "output_text": Decimal(1)}, tenant="globex")
        ),
        price_card(NewPrice("llama", "llama/eu", {"input_text": Decimal(5), "output_text": Decimal(9)}, region="eu")),
        StandardCostCard("qwen", "qwen/std", datetime(1970, 1, 1, tzinfo=UTC), 111, 22, 333),
    ]


usages = st.builds(
    Usage,
    input_text=st.none() | st.sampled_from([0, 1, 199_999, 200_000, 200_001]),
    cache_read_text=st.none() | st.sampled_from([0, 1, 7]),
    cache_write_5m=st.none() | st.sampled_from([0, 3]),
    output_text=st.none() | st.sampled_from([0, 5]),
    output_reasoning=st.none() | st.sampled_from([0, 11]),
    images=st.none() | st.sampled_from([0, 2]),
)


@st.composite
def billed(draw: st.DrawFn, midnight: datetime, book: PriceBook) -> RequestRecord:
    """A request as the gateway settles it: at midnight, a nanosecond before or after, or some time around."""
    tenant, model = draw(st.sampled_from(["acme", "globex"])), draw(st.sampled_from(["llama", "qwen", "unknown"]))
    offset_ns = draw(st.sampled_from([-1, 0, 1, -3_600 * 10**9, 3_600 * 10**9]))
    started_at_ns = int(midnight.timestamp()) * 10**9 + offset_ns
    at = midnight + timedelta(microseconds=offset_ns // 1000)
    region, operation = draw(st.sampled_from(["", "eu", "us"])), draw(st.sampled_from(["chat", "embeddings"]))
    card = book.card_for(model, tenant, at, "any", region)
    if card is not None and draw(st.booleans()):
        card = card.at_tier("batch")
    usage = draw(usages)
    cost = bill(usage, operation, card)
    return request(
        midnight,
        started_at_ns=started_at_ns,
        who=Identity(tenant, team=draw(st.sampled_from(["red", "blue"]))),
        model=model,
        provider="any",
        region=region,
        operation=operation,
        usage=usage,
        cost_pico_usd=cost.total_pico_usd,
        price_version=cost.version,
        cost_basis=cost.basis,
    )


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_same_cards_give_the_same_bill_to_the_pico_dollar(
    free_days: Iterator[datetime], reader: StoreClient, record: Record, data: st.DataObject
) -> None:
    midnight = next(free_days) + timedelta(days=1)
    cards = cards_from(midnight)
    records = data.draw(st.lists(billed(midnight, PriceBook(cards)), min_size=1, max_size=25))
    record(records)
    question = CostQuestion(midnight - timedelta(hours=2), midnight + timedelta(hours=2), ("tenant", "team"))
    before = cost_report(reader, question)
    lines = reprice(reader, question, cards).lines
    assert {line.path for line in lines} == {line.path for line in before.lines}
    for line, known in zip(lines, before.lines, strict=True):
        assert line.repriced_pico_usd == line.recorded_pico_usd == known.sums.priced_pico_usd
        assert line.repriced_unpriced_requests == line.recorded_unpriced_requests
        assert line.recorded_unpriced_requests == known.sums.unpriced_requests + known.sums.unknown_usage_requests
        assert line.repriced_unpriced_tokens == known.sums.unpriced_tokens
    assert cost_report(reader, question) == before  # the rows keep their price


def test_another_card_prices_what_was_recorded_and_what_was_not(reader: StoreClient, record: Record) -> None:
    tenant = f"tenant-{uuid4()}"
    usage = Usage(input_text=1_000, output_text=100)
    record(
        [
            request(NOON, who=Identity(tenant), usage=usage, cost_pico_usd=7, price_version="llama/old"),
            request(NOON, who=Identity(tenant), usage=usage),
            request(NOON, who=Identity(tenant), usage=Usage(input_text=1, input_audio=1, output_text=1)),
            request(NOON, who=Identity(tenant), cache="hit", usage=Usage(input_text=0, output_text=0), cost_pico_usd=5),
        ]
    )
    question = CostQuestion(NOON - timedelta(hours=1), NOON + timedelta(hours=1), ("model",), tenant=tenant)
    candidate = price_card(NewPrice("llama", "what-if", {"input_text": Decimal(1), "output_text": Decimal(2)}))
    (line,) = reprice(reader, question, cards_from(NOON), candidate).lines
    assert line.recorded_pico_usd == 12 and line.recorded_unpriced_requests == 2
    priced_part = 1 * 10**6 + 1 * 2 * 10**6  # of the request whose audio has no price
    assert line.repriced_pico_usd == 2 * (1_000 * 10**6 + 100 * 2 * 10**6) + priced_part + 5
    assert (line.repriced_unpriced_requests, line.repriced_unpriced_tokens) == (0, 0)
    silent = price_card(NewPrice("llama", "what-if", {"cache_read_text": Decimal(1)}))
    (line,) = reprice(reader, question, cards_from(NOON), silent).lines
    assert (line.repriced_pico_usd, line.repriced_unpriced_requests, line.repriced_unpriced_tokens) == (5, 3, 2_203)


def test_usage_is_priced_again_at_its_service_tier(reader: StoreClient, record: Record) -> None:
    tenant = f"tenant-{uuid4()}"
    usage = Usage(input_text=1_000, output_text=100)
    facts = {"who": Identity(tenant), "usage": usage, "model": "tiered"}
    record(
        [
            request(NOON, **facts, service_tier="flex"),
            request(NOON, **facts, service_tier="flex", cost_pico_usd=7, price_version="old#flex"),
            request(NOON, **facts, service_tier="scale"),
            request(NOON, **facts),
        ]
    )
    question = CostQuestion(NOON - timedelta(hours=1), NOON + timedelta(hours=1), ("model",), tenant=tenant)
    card = price_card(
        NewPrice(
            "tiered",
            "tiered/1",
            {"input_text": Decimal(1), "output_text": Decimal(2)},
            service_tiers={"flex": {"input_text": Decimal("0.5")}},
        )
    )
    (line,) = reprice(reader, question, [card]).lines
    standard, flex = 1_000 * 10**6 + 100 * 2 * 10**6, 1_000 * 500_000 + 100 * 2 * 10**6
    assert line.repriced_pico_usd == standard + 2 * flex
    assert line.repriced_unpriced_requests == 1, "its tier has no price"


def test_one_tenant_s_card_leaves_the_others_theirs(reader: StoreClient, record: Record) -> None:
    project, usage = f"project-{uuid4()}", Usage(input_text=10, output_text=1)
    record(
        [
            request(NOON, who=Identity(tenant, project=project), usage=usage, cost_pico_usd=1)
            for tenant in ("acme", "globex")
        ]
    )
    question = CostQuestion(NOON - timedelta(hours=1), NOON + timedelta(hours=1), ("tenant",), project=project)
    rates: dict[Leaf, Decimal] = {"input_text": Decimal(7), "output_text": Decimal(7)}
    lines = reprice(
        reader, question, cards_from(NOON), price_card(NewPrice("llama", "acme/if", rates, tenant="acme"))
    ).lines
    assert [(line.path, line.repriced_pico_usd, line.repriced_unpriced_requests) for line in lines] == [
        (("acme",), 11 * 7 * 10**6, 0),
        (("globex",), 11 * 10**6, 0),
    ]


def test_a_level_that_repricing_does_not_know_is_refused(reader: StoreClient) -> None:
    question = CostQuestion(NOON, NOON + timedelta(hours=1), ("tag:x",))
    with pytest.raises(InvalidRequest, match="repricing has no level 'tag:x'"):
        reprice(reader, question, [])
