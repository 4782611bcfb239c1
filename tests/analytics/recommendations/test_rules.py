"""What could be saved is exact by the cards, ranked, and silent where a price or traffic is missing."""

from datetime import UTC, datetime
from decimal import Decimal

from analytics.recommendations.evidence import Part, ReplicaHour, Use
from analytics.recommendations.recommendation import Recommendation, ranked
from analytics.recommendations.rules import idle_replicas, recommend
from contracts.metering.usage import Leaf
from contracts.pricing.prices import PriceBook, PriceCard, price_card

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NOTHING = Part(0, 0, 0, 0, 0)


def card(model: str, usd: str, provider: str = "", cached: str = "", batch: str = "") -> PriceCard:
    rates: dict[Leaf, Decimal] = {"input_text": Decimal(usd), "output_text": Decimal(usd) * 4}
    if cached:
        rates["cache_read_text"] = Decimal(cached)
    discount = {leaf: rate / 2 for leaf, rate in rates.items()} if batch else None
    return price_card(model, f"{model}-{provider}-1", rates, provider=provider, batch_usd_per_mtok=discount)


def use(model: str, provider: str, part: Part, **parts: object) -> Use:
    kinds = {"small": NOTHING, "patient": NOTHING, "repeated_tokens": 0, "later_turns": 0, **parts}
    return Use("t", model, provider, part, **kinds)  # type: ignore[arg-type]


def found(uses: list[Use], *cards: PriceCard) -> dict[str, Recommendation]:
    return {one.kind: one for one in recommend(uses, PriceBook(cards), NOW)}


SMALL = Part(100, 100 * (500 * 10**7 + 100 * 4 * 10**7), 50_000, 0, 10_000)  # at 10 USD per million tokens in


def test_short_requests_are_priced_at_the_cheapest_model_that_is_served() -> None:
    uses = [use("large", "", SMALL, small=SMALL), use("mini", "", NOTHING), use("middle", "", NOTHING)]
    one = found(uses, card("large", "10"), card("mini", "1"), card("middle", "5"))["right_size"]
    assert one.evidence["to_model"] == "mini" and one.tenant == "t"
    assert one.saving_pico_usd == SMALL.pico_usd - SMALL.pico_usd // 10
    few = Part(49, SMALL.pico_usd, 50_000, 0, 10_000)
    assert "right_size" not in found([use("large", "", few, small=few), use("mini", "", NOTHING)], card("mini", "1"))


def test_no_card_no_promise() -> None:
    assert found([use("large", "", SMALL, small=SMALL, patient=SMALL), use("mini", "", NOTHING)]) == {}


def test_the_same_model_for_less_elsewhere() -> None:
    uses = [use("m", "dear", SMALL), use("m", "cheap", NOTHING)]
    one = found(uses, card("m", "10", "dear"), card("m", "7", "cheap"))["cheaper_provider"]
    assert one.evidence["to_provider"] == "cheap"
    assert one.saving_pico_usd == SMALL.pico_usd - SMALL.pico_usd * 7 // 10
    assert found(uses, card("m", "10", "dear"), card("m", "9.5", "cheap")) == {}, "less than a tenth"


def test_a_saving_is_told_from_a_tenth_of_the_cost_on_and_never_where_nothing_was_paid() -> None:
    uses = [use("m", "dear", SMALL), use("m", "cheap", NOTHING)]
    assert set(found(uses, card("m", "10", "dear"), card("m", "9", "cheap"))) == {"cheaper_provider"}
    assert found(uses, card("m", "10", "dear"), card("m", "9.000001", "cheap")) == {}
    free = Part(100, 0, 50_000, 0, 10_000)
    uses = [use("m", "dear", free, small=free, patient=free), use("m", "cheap", NOTHING), use("n", "", NOTHING)]
    assert found(uses, card("m", "0", "dear", batch="y"), card("m", "0", "cheap"), card("n", "0")) == {}


def test_input_that_was_sent_before_would_have_been_a_hit() -> None:
    repeated = use("m", "", SMALL, repeated_tokens=40_000, later_turns=60)
    one = found([repeated], card("m", "10", cached="1"))["cacheable_prefix"]
    assert one.saving_pico_usd == 40_000 * 9 * 10**6
    assert "cacheable_prefix" not in found([repeated], card("m", "10")), "no price of a hit is known"


def test_what_nobody_waits_for_is_priced_as_a_batch() -> None:
    patient = use("m", "", SMALL, patient=SMALL)
    assert found([patient], card("m", "10", batch="yes"))["batch"].saving_pico_usd == SMALL.pico_usd // 2
    assert "batch" not in found([patient], card("m", "10"))


def hours(busy: list[float], count: int = 24, waiting: int = 0) -> list[ReplicaHour]:
    return [
        ReplicaHour("m", f"r{place}", hour * 3600, share, waiting, 2)
        for hour in range(count)
        for place, share in enumerate(busy)
    ]


def test_replicas_beyond_the_busiest_hour_are_idle() -> None:
    (one,) = idle_replicas(hours([0.3, 0.2, 0.1, 0.1]), Decimal("2.50"))
    assert one.evidence["needed"] == 1 and one.evidence["gpu_hours"] == 3 * 2 * 24
    assert one.saving_usd == Decimal("2.50") * 144
    (unknown,) = idle_replicas(hours([0.3, 0.2, 0.1, 0.1]), None)
    assert unknown.saving_pico_usd is None and "no price of a GPU-hour" in unknown.caution
    assert list(idle_replicas(hours([0.7, 0.7]), None)) == []
    assert list(idle_replicas(hours([0.1, 0.1], count=23), None)) == [], "less than a day says little"


def test_the_largest_saving_comes_first_and_the_unknown_last() -> None:
    made = [Recommendation("batch", "t", name, "", saving, {}) for name, saving in (("a", None), ("b", 5), ("c", 9))]
    assert [one.model for one in ranked(made)] == ["c", "b", "a"]
    assert made[0].as_json()["saving_usd"] is None
