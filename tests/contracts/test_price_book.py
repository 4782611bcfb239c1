"""Which card holds: for whom, from which provider, at which moment; and which cards cannot stand side by side."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.metering.usage import INPUT_LEAVES, LEAVES, TOKEN_LEAVES
from contracts.pricing.prices import PriceBook, PriceCard, StandardCostCard

SOME = settings(max_examples=80, deadline=None)
YEAR_2026 = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_2027 = datetime(2027, 1, 1, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)
OWN = StandardCostCard("m", "s1", YEAR_2026, input_rate=50_000, cached_input_rate=5_000, output_rate=400_000)


def dated(version, valid_from, valid_to=None, *, model="m", provider="", tenant="", region=""):
    return PriceCard(
        model=model,
        version=version,
        valid_from=valid_from,
        valid_to=valid_to,
        rates={"input_text": 1},
        provider=provider,
        tenant=tenant,
        region=region,
    )


def test_a_card_holds_from_its_first_instant_until_just_before_its_last():
    book = PriceBook([dated("old", YEAR_2026, YEAR_2027), dated("new", YEAR_2027)])
    found = {
        moment: card.version if (card := book.card_for("m", "", moment)) else None
        for moment in (YEAR_2026 - INSTANT, YEAR_2026, YEAR_2027 - INSTANT, YEAR_2027, YEAR_2027 + INSTANT)
    }
    assert list(found.values()) == [None, "old", "old", "new", "new"]


def test_a_moment_is_the_same_in_every_time_zone():
    book = PriceBook([dated("old", YEAR_2026, YEAR_2027), dated("new", YEAR_2027)])
    in_tokyo = YEAR_2027.astimezone(timezone(timedelta(hours=9)))
    card = book.card_for("m", "", in_tokyo)
    before = book.card_for("m", "", in_tokyo - INSTANT)
    assert card is not None
    assert before is not None
    assert (card.version, before.version) == ("new", "old")


def test_between_cards_and_for_other_models_there_is_no_price():
    book = PriceBook([dated("old", YEAR_2026, YEAR_2026 + INSTANT), dated("new", YEAR_2027)])
    assert book.card_for("m", "", YEAR_2026 + INSTANT) is None
    assert book.card_for("other", "", YEAR_2027) is None
    assert PriceBook().card_for("m", "acme", YEAR_2027) is None


def test_a_tenants_own_card_goes_first_and_only_for_that_tenant_and_only_while_it_holds():
    book = PriceBook([dated("list", YEAR_2026), dated("acme's", YEAR_2026, YEAR_2027, tenant="acme")])

    def version(tenant, moment):
        card = book.card_for("m", tenant, moment)
        assert card is not None
        return card.version

    assert version("acme", YEAR_2027 - INSTANT) == "acme's"
    assert version("acme", YEAR_2027) == "list"
    assert version("globex", YEAR_2026) == "list"
    assert version("", YEAR_2026) == "list"


def test_a_providers_own_card_goes_before_the_one_for_any_provider_and_a_tenants_before_both():
    book = PriceBook(
        [
            dated("any", YEAR_2026),
            dated("azure's", YEAR_2026, YEAR_2027, provider="azure"),
            dated("acme's", YEAR_2026, YEAR_2027, tenant="acme"),
            dated("acme's at azure", YEAR_2026, YEAR_2027, provider="azure", tenant="acme"),
        ]
    )
    expected = {
        ("azure", "acme"): "acme's at azure",
        ("openai", "acme"): "acme's",
        ("", "acme"): "acme's",
        ("azure", "globex"): "azure's",
        ("azure", ""): "azure's",
        ("openai", "globex"): "any",
    }
    for (provider, tenant), version in expected.items():
        card = book.card_for("m", tenant, YEAR_2026, provider)
        later = book.card_for("m", tenant, YEAR_2027, provider)
        assert card is not None and later is not None
        assert (card.version, later.version) == (version, "any")


def test_a_providers_card_prices_no_other_provider():
    book = PriceBook([dated("azure's", YEAR_2026, provider="azure")])
    assert book.card_for("m", "acme", YEAR_2026, "openai") is None
    assert book.card_for("m", "acme", YEAR_2026) is None


def test_a_region_s_own_card_goes_before_the_one_for_any_region_and_behind_provider_and_tenant():
    book = PriceBook(
        [
            dated("any", YEAR_2026),
            dated("eu", YEAR_2026, YEAR_2027, region="eu"),
            dated("azure's", YEAR_2026, YEAR_2027, provider="azure"),
            dated("azure's in eu", YEAR_2026, YEAR_2027, provider="azure", region="eu"),
            dated("acme's", YEAR_2026, YEAR_2027, tenant="acme"),
        ]
    )
    expected = {
        ("openai", "globex", "eu"): "eu",
        ("openai", "globex", "us"): "any",
        ("openai", "globex", ""): "any",
        ("azure", "globex", "eu"): "azure's in eu",
        ("azure", "globex", "us"): "azure's",
        ("azure", "acme", "eu"): "acme's",
    }
    for (provider, tenant, region), version in expected.items():
        card = book.card_for("m", tenant, YEAR_2026, provider, region)
        later = book.card_for("m", tenant, YEAR_2027, provider, region)
        assert card is not None and later is not None
        assert (card.version, later.version) == (version, "any")


def test_a_region_s_card_prices_no_other_region():
    book = PriceBook([dated("eu", YEAR_2026, region="eu")])
    assert book.card_for("m", "acme", YEAR_2026, "openai", "us") is None
    assert book.card_for("m", "acme", YEAR_2026, "openai") is None


def test_two_cards_never_share_a_version():
    with pytest.raises(ConfigurationError, match="two cards have the version 'v1'.* give each its own"):
        PriceBook([dated("v1", YEAR_2026), dated("v1", YEAR_2026, model="n")])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((YEAR_2026, None), (YEAR_2027, None)),
        ((YEAR_2026, YEAR_2027 + INSTANT), (YEAR_2027, None)),
        ((YEAR_2026, YEAR_2027), (YEAR_2026, YEAR_2027)),
    ],
)
def test_overlapping_cards_are_refused_naming_both(first, second):
    cards = [dated("one", *first), dated("two", *second)]
    for order in (cards, cards[::-1]):
        with pytest.raises(ConfigurationError, match="(?=.*'one')(?=.*'two').*of model 'm' overlap"):
            PriceBook(order)


def test_the_advice_of_an_overlap_can_be_followed():
    with pytest.raises(ConfigurationError, match="end the first with valid_to <= 2027-01-01"):
        PriceBook([dated("one", YEAR_2026), dated("two", YEAR_2027)])
    PriceBook([dated("one", YEAR_2026, YEAR_2027), dated("two", YEAR_2027)])
    with pytest.raises(ConfigurationError, match="both start at 2026-01-01.*remove one of them or let it start later"):
        PriceBook([dated("one", YEAR_2026, YEAR_2027), dated("two", YEAR_2026)])
    PriceBook([dated("one", YEAR_2026, YEAR_2027), dated("two", YEAR_2027)])


def test_cards_of_other_models_providers_and_tenants_do_not_overlap():
    PriceBook(
        [
            dated("a", YEAR_2026),
            dated("b", YEAR_2026, model="n"),
            dated("c", YEAR_2026, tenant="acme"),
            dated("d", YEAR_2026, provider="azure"),
            dated("e", YEAR_2026, region="eu"),
        ]
    )
    with pytest.raises(ConfigurationError, match="overlap"):
        PriceBook([dated("e", YEAR_2026, region="eu"), dated("f", YEAR_2027, region="eu")])


@SOME
@given(st.lists(st.integers(0, 1000), unique=True, min_size=2, max_size=12), st.randoms(), st.integers(-5, 1005))
def test_the_book_finds_the_one_card_that_holds(bounds, random, minute):
    bounds = sorted(bounds)
    cards = [
        dated(f"{start}", YEAR_2026 + timedelta(minutes=start), YEAR_2026 + timedelta(minutes=end))
        for start, end in zip(bounds[::2], bounds[1::2], strict=False)
    ]
    random.shuffle(cards)
    moment = YEAR_2026 + timedelta(minutes=minute)
    holding = [card for card in cards if card.is_valid_at(moment)]
    assert len(holding) <= 1
    assert PriceBook(cards).card_for("m", "", moment) == (holding[0] if holding else None)


def test_a_standard_card_and_a_price_card_of_one_model_must_not_overlap_either():
    with pytest.raises(ConfigurationError, match="'s1'"):
        PriceBook([OWN, dated("list", YEAR_2026)])


def test_a_standard_card_tells_cached_from_other_input():
    rates = {leaf: OWN.rate(leaf, None) for leaf in LEAVES}
    assert {leaf for leaf, rate in rates.items() if rate == 5_000} == {"cache_read_text", "cache_read_audio"}
    assert {leaf for leaf, rate in rates.items() if rate == 400_000} == set(TOKEN_LEAVES) - set(INPUT_LEAVES)
