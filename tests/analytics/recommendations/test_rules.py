"""What could be saved is exact by the cards, ranked, and silent where a price or traffic is missing."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from analytics.recommendations.evidence import Part, Repeated, ReplicaHour, Slice, Use
from analytics.recommendations.recommendation import Recommendation, ranked
from analytics.recommendations.rules import idle_replicas, recommend
from contracts.metering.usage import Leaf
from contracts.pricing.prices import NewPrice, PriceBook, PriceCard, price_card

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NOTHING = Part()


def card(model: str, usd: str, provider: str = "", cached: str = "", batch: str = "", **more: Any) -> PriceCard:
    rates: dict[Leaf, Decimal] = {"input_text": Decimal(usd), "output_text": Decimal(usd) * 4}
    if cached:
        rates["cache_read_text"] = Decimal(cached)
    discount = {leaf: rate / 2 for leaf, rate in rates.items()} if batch else {}
    version = f"{model}-{provider}-{more.get('region', '')}-{usd}"
    return price_card(NewPrice(model, version, rates, provider=provider, batch_usd_per_mtok=discount, **more))


def use(model: str, provider: str, part: Part, region: str = "", **parts: Any) -> Use:
    kinds: dict[str, Any] = {"small": NOTHING, "patient": NOTHING, **parts}
    return Use("t", model, provider, region, part, **kinds)


def part(requests: int = 100, **of_price: Any) -> Part:
    """Requests of 500 tokens in and 100 out."""
    return Part((Slice(requests, requests * 500, 0, requests * 100, **of_price),))


def found(uses: list[Use], *cards: PriceCard) -> dict[str, Recommendation]:
    return {one.kind: one for one in recommend(uses, PriceBook(cards), NOW)}


SMALL = part()
AT_TEN = 100 * (500 * 10**7 + 100 * 4 * 10**7)  # what these cost at 10 USD per million tokens in


def test_short_requests_are_priced_at_the_cheapest_model_that_is_served() -> None:
    uses = [use("large", "", SMALL, small=SMALL), use("mini", "", NOTHING), use("middle", "", NOTHING)]
    one = found(uses, card("large", "10"), card("mini", "1"), card("middle", "5"))["right_size"]
    assert one.evidence["to_model"] == "mini" and one.tenant == "t"
    assert one.saving_pico_usd == AT_TEN - AT_TEN // 10
    for requests, is_traffic in ((49, False), (50, True), (51, True)):
        few = part(requests)
        uses = [use("large", "", few, small=few), use("mini", "", NOTHING)]
        assert ("right_size" in found(uses, card("large", "10"), card("mini", "1"))) is is_traffic


def test_no_card_no_promise() -> None:
    assert found([use("large", "", SMALL, small=SMALL, patient=SMALL), use("mini", "", NOTHING)]) == {}


def test_the_same_model_for_less_elsewhere() -> None:
    uses = [use("m", "dear", SMALL), use("m", "cheap", NOTHING)]
    one = found(uses, card("m", "10", "dear"), card("m", "7", "cheap"))["cheaper_provider"]
    assert one.evidence["to_provider"] == "cheap"
    assert one.saving_pico_usd == AT_TEN - AT_TEN * 7 // 10
    assert found(uses, card("m", "10", "dear"), card("m", "9.5", "cheap")) == {}, "less than a tenth"


def test_a_saving_is_told_from_a_tenth_of_the_cost_on_and_never_where_nothing_was_paid() -> None:
    uses = [use("m", "dear", SMALL), use("m", "cheap", NOTHING)]
    assert set(found(uses, card("m", "10", "dear"), card("m", "9", "cheap"))) == {"cheaper_provider"}
    assert found(uses, card("m", "10", "dear"), card("m", "9.000001", "cheap")) == {}
    uses = [use("m", "dear", SMALL, small=SMALL, patient=SMALL), use("m", "cheap", NOTHING), use("n", "", NOTHING)]
    assert found(uses, card("m", "0", "dear", batch="y"), card("m", "0", "cheap"), card("n", "0")) == {}


def test_input_that_was_sent_before_would_have_been_a_hit() -> None:
    repeated = use("m", "", SMALL, repeated=(Repeated(60, 40_000, Slice(0, 0, 0, 0)),))
    one = found([repeated], card("m", "10", cached="1"))["cacheable_prefix"]
    assert one.saving_pico_usd == 40_000 * 9 * 10**6
    assert "cacheable_prefix" not in found([repeated], card("m", "10")), "no price of a hit is known"


def test_what_nobody_waits_for_is_priced_as_a_batch() -> None:
    patient = use("m", "", SMALL, patient=SMALL)
    assert found([patient], card("m", "10", batch="yes"))["batch"].saving_pico_usd == AT_TEN // 2
    assert "batch" not in found([patient], card("m", "10"))


def test_a_region_is_priced_by_its_own_card() -> None:
    uses = [use("m", "p", SMALL, "eu"), use("m", "p", SMALL, "us")]
    general, european = card("m", "10", "p"), card("m", "11", "p", region="eu")
    assert found(uses, general, european) == {}, "less than a tenth"
    dear = card("m", "12.5", "p", region="eu")
    one = found(uses, general, dear)["cheaper_provider"]
    assert one.saving_pico_usd == AT_TEN * 5 // 4 - AT_TEN
    assert (one.evidence["from_region"], one.evidence["to_region"]) == ("eu", "us")
    assert "in us" in one.action and "may be processed there" in one.caution
    small = [use("large", "p", SMALL, "eu", small=SMALL), use("mini", "p", NOTHING, "eu")]
    cards = [card("large", "10", "p"), card("mini", "1", "p"), card("mini", "20", "p", region="eu")]
    assert found(small, *cards) == {}, "the smaller model is dearer where it is served"


def test_both_sides_are_priced_at_the_service_tier_that_was_used() -> None:
    flex: dict[Leaf, Decimal] = {"input_text": Decimal(5), "output_text": Decimal(20)}
    cheap = part(tier="flex")
    uses = [use("m", "dear", cheap, patient=cheap), use("m", "other", NOTHING)]
    dear = card("m", "10", "dear", service_tiers={"flex": flex}, batch="y")
    assert found(uses, dear, card("m", "7", "other")) == {}, "flex and batches both cost 5: nothing is cheaper"
    one = found(uses, dear, card("m", "4", "other"))["cheaper_provider"]
    assert one.saving_pico_usd == AT_TEN // 2 - AT_TEN * 4 // 10, "a provider without the tier asks its standard price"
    mixed = Part((*cheap.slices, *part(60, tier="gone").slices))
    one = found([use("m", "dear", mixed), use("m", "other", NOTHING)], dear, card("m", "4", "other"))[
        "cheaper_provider"
    ]
    assert one.evidence["requests"] == 100, "what no card prices today is no part of a saving"


def test_long_prompts_are_priced_above_their_threshold() -> None:
    long = part(input_tokens=1_001)
    above: dict[Leaf, Decimal] = {"input_text": Decimal(20), "output_text": Decimal(80), "cache_read_text": Decimal(2)}
    tiered = card("m", "10", "dear", cached="1", tiers=[(1_000, above)])
    repeated = (Repeated(60, 40_000, long.slices[0]),)
    found_of = found(
        [use("m", "dear", long, repeated=repeated), use("m", "cheap", NOTHING)], tiered, card("m", "10", "cheap")
    )
    assert found_of["cheaper_provider"].saving_pico_usd == 2 * AT_TEN - AT_TEN
    assert found_of["cacheable_prefix"].saving_pico_usd == 40_000 * 18 * 10**6


def test_what_ended_before_now_is_no_price() -> None:
    uses = [use("m", "dear", SMALL), use("m", "cheap", NOTHING)]
    old = card("m", "100", "dear", valid_to=NOW)
    new = card("m", "10", "dear", valid_from=NOW)
    one = found(uses, old, new, card("m", "7", "cheap"))["cheaper_provider"]
    assert one.saving_pico_usd == AT_TEN - AT_TEN * 7 // 10, "of today's price, not of last week's"
    assert found(uses, old, card("m", "7", "cheap")) == {}, "no price holds today"


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
