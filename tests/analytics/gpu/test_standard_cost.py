"""Standard cost cards recover what they were fitted to, variances sum to what they explain, and intervals cover."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.gpu.publishing import fitted_card_row, publish
from analytics.gpu.standard_cost import ModelHour, fit_standard_cost
from analytics.gpu.unit_cost import host_or_buy, unit_cost
from analytics.gpu.variance import Standard, cost_variance
from analytics.scope import Period
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.prices import NewStandardCost, card_of_standard_cost, create_standard_cost, load_cards
from contracts.errors import Conflict, InvalidRequest
from contracts.pricing.prices import NewPrice, PriceBook, price_card

START = datetime(2026, 11, 1, tzinfo=UTC)
PERIOD = Period(START, START + timedelta(hours=4))
BUSY, OTHER = 8 * 10**12, 2 * 10**12

counts = st.integers(1, 10**6)
hours_of_use = st.lists(st.tuples(counts, counts, counts, counts, counts), min_size=2, max_size=8)


def hours(*rows: tuple[int, int, int]) -> list[ModelHour]:
    """Hours in which an uncached token took 1,000 ns, a cached one 10 and one of output 5,000."""
    return [
        ModelHour("m", place * 3600, 10, fresh, cached, made, fresh * 1_000 + cached * 10, made * 5_000)
        for place, (fresh, cached, made) in enumerate(rows)
    ]


USED = hours((10_000, 0, 500), (5_000, 20_000, 900), (800, 100, 4_000))


def test_a_fit_finds_what_tokens_took_and_charges_what_all_cost() -> None:
    fit = fit_standard_cost("m", "m/1", USED, PERIOD, BUSY, OTHER)
    card = fit.card
    assert card.input_rate / card.cached_input_rate == pytest.approx(100, rel=1e-6)
    assert card.output_rate / card.input_rate == pytest.approx(5, rel=1e-6)
    assert fit.error == pytest.approx(0, abs=1e-9) and fit.overhead == 0.25
    charged = 15_800 * card.input_rate + 20_100 * card.cached_input_rate + 5_400 * card.output_rate
    assert charged == pytest.approx(BUSY + OTHER, rel=1e-6)


@given(hours_of_use)
def test_rates_are_never_negative(rows: list[tuple[int, int, int, int, int]]) -> None:
    measured = [ModelHour("m", place, 1, *row) for place, row in enumerate(rows)]
    card = fit_standard_cost("m", "m/1", measured, PERIOD, BUSY, OTHER).card
    assert min(card.input_rate, card.cached_input_rate, card.output_rate) >= 0


def test_a_fit_to_too_little_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="measured in 1 hours"):
        fit_standard_cost("m", "m/1", USED[:1], PERIOD, BUSY, OTHER)
    with pytest.raises(InvalidRequest, match="no GPU rate is valid"):
        fit_standard_cost("m", "m/1", USED, PERIOD, 0, 0)


def test_what_was_never_seen_is_not_free() -> None:
    card = fit_standard_cost("m", "m/1", hours((100, 0, 10), (200, 0, 30)), PERIOD, BUSY, OTHER).card
    assert card.cached_input_rate == card.input_rate > 0
    only_read = [ModelHour("m", place, 1, 100, 0, 0, 10_000, 0) for place in (0, 3600)]
    card = fit_standard_cost("m", "m/1", only_read, PERIOD, BUSY, OTHER).card
    assert card.output_rate == card.input_rate > 0
    of_no_token = [ModelHour("m", place, 1, 100, 0, 0, 0, 10_000) for place in (0, 3600)]
    with pytest.raises(InvalidRequest, match="no rate can be computed"):
        fit_standard_cost("m", "m/1", of_no_token, PERIOD, BUSY, OTHER)


@given(hours_of_use, st.integers(0, 10**14), st.integers(0, 10**14), st.integers(1, 100))
def test_the_parts_of_a_variance_are_its_whole(
    rows: list[tuple[int, int, int, int, int]], busy: int, other: int, length: int
) -> None:
    fit = fit_standard_cost("m", "m/1", USED, PERIOD, BUSY, OTHER)
    standard = Standard.from_evidence(fit.card, fit.evidence())
    measured = [ModelHour("m", place, 1, *row) for place, row in enumerate(rows)]
    found = cost_variance(measured, standard, busy, other, timedelta(hours=length))
    assert found.co_tenancy + found.idle + found.volume + found.cache == found.total


def test_each_cause_shows_in_its_own_part() -> None:
    fit = fit_standard_cost("m", "m/1", USED, PERIOD, BUSY, OTHER)
    standard = Standard.from_evidence(fit.card, fit.evidence())
    length = PERIOD.end - PERIOD.start
    tiny = BUSY // 10**6
    as_fitted = cost_variance(USED, standard, BUSY, OTHER, length)
    assert max(map(abs, (as_fitted.co_tenancy, as_fitted.idle, as_fitted.volume, as_fitted.cache))) < tiny
    slower = cost_variance(USED, standard, BUSY * 2, OTHER, length)
    assert slower.co_tenancy == pytest.approx(BUSY, rel=1e-5) and slower.idle == as_fitted.idle
    idler = cost_variance(USED, standard, BUSY, OTHER * 3, length)
    assert idler.idle == pytest.approx(2 * OTHER, rel=1e-5) and idler.volume == as_fitted.volume
    fewer = cost_variance(USED[:1], standard, BUSY, OTHER, length)
    assert fewer.volume > 0
    cached = cost_variance(hours((0, 30_000, 5_400)), standard, BUSY, OTHER, length)
    assert cached.cache > 0


def test_a_cost_per_token_is_inside_its_interval_and_held_against_a_price() -> None:
    cost = unit_cost(USED, BUSY + OTHER)
    assert cost.low <= cost.usd_per_mtok <= cost.high and cost.tokens == 41_300
    even = unit_cost(hours((100, 0, 10), (100, 0, 10)), 110 * 2 * 10**6)
    assert even.low == even.usd_per_mtok == even.high == Decimal(1)
    dear = price_card(NewPrice("x", "x/1", {"input_text": Decimal(5), "output_text": Decimal(5)}))
    answer = host_or_buy(hours((100, 0, 10), (100, 0, 10)), 220 * 10**6, 0.5, dear)
    assert answer.is_hosting_cheaper and answer.break_even_utilisation == pytest.approx(0.1) and answer.is_certain
    cheap = price_card(NewPrice("x", "x/2", {"input_text": Decimal("0.1"), "output_text": Decimal("0.1")}))
    assert host_or_buy(hours((100, 0, 10), (100, 0, 10)), 220 * 10**6, 0.5, cheap).break_even_utilisation is None
    with pytest.raises(InvalidRequest, match="has no price for output_text"):
        host_or_buy(USED, 1, 0.5, price_card(NewPrice("x", "x/3", {"input_text": Decimal(1)})))


def test_a_published_card_is_what_gateways_price_with_from_then_on(control_database: ControlDatabase) -> None:
    first = fit_standard_cost("m", "m/1", USED, PERIOD, BUSY, OTHER)
    second = fit_standard_cost("m", "m/2", USED, PERIOD, BUSY * 2, OTHER)
    author = Author("test", START)
    with control_database.session() as session:
        publish(session, author, first, START + timedelta(hours=5))
        publish(session, author, second, START + timedelta(hours=6))
    with control_database.session() as session:
        book = PriceBook(load_cards(session))
        held = [book.card_for("m", "acme", START + timedelta(hours=hour)) for hour in (4, 5, 6)]
        row = fitted_card_row(session, "m", START + timedelta(hours=7))
        assert row is not None and row.origin == "fitted"
        standard = Standard.from_evidence(card_of_standard_cost(row), row.evidence)
    assert [None if card is None else card.version for card in held] == [None, "m/1", "m/2"]
    assert standard.overhead == second.overhead


def test_nonsense_is_not_published(control_database: ControlDatabase) -> None:
    at_the_limit = fit_standard_cost("m", "m/1", USED, PERIOD, BUSY, 19 * BUSY)
    too_idle = fit_standard_cost("m", "m/2", USED, PERIOD, BUSY, 19 * BUSY + 1)
    free_input = [ModelHour("m", place, 10, 100, 0, 10, 0, 10_000) for place in (0, 3600)]
    with control_database.session() as session:
        with pytest.raises(InvalidRequest, match="idle time would cost 19 times the use"):
            publish(session, Author("test", START), too_idle, START)
        with pytest.raises(InvalidRequest, match="uncached input would cost 0.000000 USD"):
            gift = fit_standard_cost("m", "m/3", free_input, PERIOD, BUSY, OTHER)
            publish(session, Author("test", START), gift, START)
        assert publish(session, Author("test", START), at_the_limit, START).version == "m/1"


def test_cached_input_that_costs_more_than_uncached_is_implausible_and_needs_force(
    control_database: ControlDatabase,
) -> None:
    # Prefill time that goes with the cached tokens: the fit gives them the higher rate.
    odd = [
        ModelHour("m", place * 3600, 10, fresh, cached, 50, cached * 100 + fresh, 250_000)
        for place, (fresh, cached) in enumerate(((1_000, 10), (900, 500), (1_100, 80)))
    ]
    fit = fit_standard_cost("m", "m/1", odd, PERIOD, BUSY, OTHER)
    assert fit.card.cached_input_rate > fit.card.input_rate
    assert any("cached input would cost" in doubt for doubt in fit.doubts)
    author = Author("test", START)
    with control_database.session() as session:
        with pytest.raises(InvalidRequest, match="is implausible and is not published: cached input would cost"):
            publish(session, author, fit, START)
        assert publish(session, author, fit, START, is_forced=True).version == "m/1"


@pytest.mark.parametrize(("requests", "is_doubted"), [(3, True), (4, False), (5, False)])
def test_too_few_requests_are_implausible(requests: int, is_doubted: bool) -> None:
    few = [replace(hour, requests=requests) for hour in USED]  # three hours: 9, 12, 15
    assert bool(fit_standard_cost("m", "m/1", few, PERIOD, BUSY, OTHER).doubts) == is_doubted


def test_a_fitted_card_takes_the_place_of_the_built_in_one_and_not_of_an_operator_s(
    control_database: ControlDatabase,
) -> None:
    fit = fit_standard_cost("m", "m/1", USED, PERIOD, BUSY, OTHER)
    mine = fit_standard_cost("own", "own/1", USED, PERIOD, BUSY, OTHER)
    author = Author("test", START)
    with control_database.session() as session:
        for model, version in (("m", "builtin/2026-11"), ("own", "mine/1")):
            rates = (Decimal("0.1"), Decimal("0.05"), Decimal("0.4"))
            create_standard_cost(session, author, NewStandardCost(model, version, *rates))
        publish(session, author, fit, START)
        with pytest.raises(Conflict, match="mine/1"):
            publish(session, author, mine, START)
        book = PriceBook(load_cards(session, "m"))
    held = [book.card_for("m", "acme", START + timedelta(seconds=second)) for second in (-1, 0)]
    assert [None if card is None else card.version for card in held] == ["builtin/2026-11", "m/1"]
