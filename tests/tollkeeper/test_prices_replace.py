"""`tollkeeper prices replace` shows what a card's successor costs; changed list prices are told, or replaced."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from analytics.alerts.sources import AlertInputs
from analytics.alerts.spending import price_changes_told
from analytics.prices.listing import SoldModel, as_new_price, listed_cards
from analytics.prices.watched import PriceSchedule, PriceWatch
from backends.control.prices import create_price, load_cards
from contracts.control import Model, Pool, Target
from contracts.pricing.prices import PriceCard
from contracts.rules.alerts import Rule
from tests.tollkeeper.test_books_command import CALENDAR, Books, refused, said
from tests.tollkeeper.test_runbook_drills import steps

NOW = datetime.now(UTC)
LAST_MONTH = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - timedelta(days=5)


@pytest.fixture
def books(store: Any, tmp_path: Path, migrated_sqlite: Path) -> Iterator[Books]:
    data = tmp_path / "data"
    shutil.copytree(store.data / "secrets", data / "secrets")
    shutil.copy(migrated_sqlite, data / "control.db")
    found = Books(store, data)
    yield found
    found.database.close()


def cards_of(books: Books) -> dict[str, PriceCard]:
    with books.database.session() as session:
        return {card.version: card for card in load_cards(session) if isinstance(card, PriceCard)}


def test_a_card_is_replaced_in_one_step_once_its_effect_is_known(books: Books) -> None:
    old, new = f"old-{books.tenant}", f"new-{books.tenant}"
    books.card(old, "gpt-x", "2", "10")  # 1,000 tokens in and 100 out: 0.003 USD
    books.used(*(books.request(LAST_MONTH + timedelta(minutes=each), "gpt-x", 1, "was") for each in range(4)))
    command = ["prices", "replace", old, new, "--price", "input_text=2.5", *books.place]
    (change,) = said(*command, "--dry-run")["changes"]
    assert (change["requests"], change["usd_before"], change["usd_after"]) == (4, "0.012000000000", "0.014000000000")
    assert change["change"] == "input_text 2 -> 2.5" and new not in cards_of(books)
    said(*command, "--yes")
    cards = cards_of(books)
    assert cards[old].valid_to == cards[new].valid_from
    assert cards[new].rates == {"input_text": 2_500_000, "output_text": 10_000_000}
    assert "does not hold now" in refused("prices", "replace", old, "third", "--percent", "1", *books.place, "--yes")
    said("prices", "replace", new, f"third-{books.tenant}", "--percent", "10", "--yes", *books.place)
    assert cards_of(books)[f"third-{books.tenant}"].rates["output_text"] == 11_000_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing would change; give --price or --percent"),
        (("--price", "tokens=1"), "'tokens' is not a kind of token; use one of input_text"),
        (("--price", "input_text=much"), "the price of input_text is 'much'"),
        (("--price", "input_text=-1"), "input_text"),
    ],
)
def test_a_replacement_that_cannot_be_is_refused_by_name(books: Books, arguments: tuple[str, ...], words: str) -> None:
    books.card("old", "gpt-x", "2", "10")
    assert words in refused("prices", "replace", "old", "new", *arguments, *books.place)
    assert set(cards_of(books)) & {"old", "new"} == {"old"}


def sold_at_twice(books: Books) -> PriceCard:
    """Return the card of a model whose imported input price is twice what the list says; one request used it."""
    model = f"claude-{uuid4().hex[:8]}"
    sold = SoldModel(model, "anthropic", "anthropic/claude-sonnet-4-5", "litellm")
    listed = next(card for card in listed_cards(sold, None) if card.is_valid_at(NOW))
    twice = {**listed.rates, "input_text": listed.rates["input_text"] * 2}
    old = replace(listed, rates=twice, version=listed.version.replace("genai-prices-", "genai-prices-0.0.", 1))
    with books.database.session() as session:
        session.add(Pool(id=model, created_at=NOW))
        session.flush()
        session.add(Target(id="one", pool_id=model, kind="litellm", model=sold.upstream, provider="anthropic"))
        session.add(Model(id=model, pool_id=model, created_at=NOW))
        create_price(session, CALENDAR, as_new_price(old))
    books.used(books.request(LAST_MONTH, model, 1, "was", provider="anthropic"))
    return old


def test_drill_of_a_list_price_that_has_changed(books: Books) -> None:
    old = sold_at_twice(books)
    _, shown, replaced, *_ = steps("price-change", {"DATE": "", "VERSION": "", "TEXT": "", "OLD": "", "NEW": ""})
    (change,) = said(*shown, *books.place)["changes"]
    assert (change["model"], change["change"]) == (old.model, "input_text 6 -> 3")
    assert cards_of(books)[old.version].valid_to is None
    said(*replaced, *books.place)
    assert cards_of(books)[old.version].valid_to is not None
    store = books.reader()
    look = AlertInputs(store, datetime.now(UTC), prices=PriceWatch(books.database, PriceSchedule()))
    rules = [Rule.of("prices", "price_change", "", (), {"least_usd": 0})]
    assert price_changes_told(look, rules) == {"prices": []}


def test_a_changed_list_price_is_told_with_its_cost_and_replaced_by_the_schedule(books: Books) -> None:
    old, store = sold_at_twice(books), books.reader()
    watch = PriceWatch(books.database, PriceSchedule())
    assert watch.chore(store, lambda: NOW)() == 0  # it only tells
    look = AlertInputs(store, NOW, prices=watch)
    rules = [Rule.of(f"from {least}", "price_change", "", (), {"least_usd": least}) for least in (0, 0.003, 0.0031)]
    told = price_changes_told(look, rules)
    assert [len(told[rule.id]) for rule in rules] == [1, 1, 0]
    (finding,) = told["from 0"]
    assert "input_text 6 -> 3" in finding.summary and "-0.00 USD a month at the usage of" in finding.summary
    assert Decimal(str(finding.facts["difference_usd"])) == Decimal("-0.003")

    due = PriceWatch(books.database, PriceSchedule(replaces=True)).chore(store, lambda: NOW)
    assert (due(), due()) == (1, 0)
    assert watch(store, NOW + timedelta(minutes=59)).changes and not watch(store, NOW + timedelta(minutes=60)).changes
    assert cards_of(books)[old.version].valid_to == NOW.replace(microsecond=0)
