"""Two gateways that count in one Redis: together they allow one limit, and what dies with one is the other's again."""

import pytest

from bench.fleet.crowd import Demand
from bench.fleet.fleet import Fleet
from bench.fleet.killed import SLOTS, KilledGateway
from bench.fleet.redis_server import RedisServer
from bench.fleet.shows import agreement, show_money, show_tokens

pytestmark = [pytest.mark.e2e, pytest.mark.service, pytest.mark.drill]

EXPIRY_SECONDS = 10.0
LATE_SECONDS = 2.0
SLOP = 4.0  # seconds that the look goes on, so that a late release shows as a figure
TOKENS_PER_MINUTE = 30_000
BUDGET_PICO_USD = 15 * 10**9
DEMAND = Demand(clients=30, seconds=4.0, starts_within_seconds=1.0, gap_ms=2.0, patience_seconds=0.2)


@pytest.fixture
def redis_url(require_service):
    require_service("redis-server", RedisServer.is_installed(), "apt-get install redis-server")
    with RedisServer() as server:
        yield server.url


def assert_books_agree(shown) -> None:
    found = agreement(shown.crowd, shown.books)
    assert found.requests > 10, "too few to say anything"
    assert (found.without_record, found.tokens_unrecorded, found.whole_but_different) == (0, 0, 0)


async def test_two_gateways_charge_no_more_than_one_limit_of_tokens(redis_url):
    shown = await show_tokens(redis_url, TOKENS_PER_MINUTE, DEMAND, gateways=2)
    assert shown.books.most_in_a_window(60 * 10**9) <= TOKENS_PER_MINUTE
    assert shown.utilisation >= 0.7, "what one gateway has leased and does not use is kept from the other"
    assert shown.crowd.refused, "nobody was refused, so nothing was shown"
    assert shown.books.misbooked == []
    assert_books_agree(shown)


async def test_two_gateways_spend_no_more_than_one_budget(redis_url):
    shown = await show_money(redis_url, BUDGET_PICO_USD, DEMAND, gateways=2)
    assert shown.books.charged_pico_usd <= BUDGET_PICO_USD
    assert shown.unused <= 0.1
    assert shown.refused_when_spent == 1.0
    assert shown.refused_otherwise == 0
    assert_books_agree(shown)


async def test_what_a_killed_gateway_held_is_another_gateways_after_the_expiry(redis_url):
    killed = KilledGateway(EXPIRY_SECONDS + SLOP)
    async with Fleet(2, killed.configuration(), redis_url) as fleet:
        freed = await killed.measure(fleet)
    assert freed.slots_admitted == SLOTS
    assert freed.money_seconds is None, "a budget's lease outlasts a minute in which Redis does not answer"
    for seconds in (freed.slots_seconds, freed.tokens_seconds):
        assert seconds is not None and seconds <= EXPIRY_SECONDS + LATE_SECONDS
