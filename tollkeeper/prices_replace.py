"""`tollkeeper prices replace`: replaces a price card by a new one, after showing the effect on cost."""

import os
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from analytics.prices.listing import adjusted
from analytics.prices.refresh import PriceChange, PriceRefresh, change_costs, last_month, replace_changed
from backends.control.changes import Author
from backends.control.prices import card_of_price, get_price, load_cards
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.metering.usage import LEAVES, Leaf
from contracts.pricing.money import pico_usd_per_token
from contracts.pricing.prices import PriceCard
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.prices_refresh import show_effect
from tollkeeper.printing import one_line_errors


def replace_command(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Version of the card that ends.")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Version of the card that begins now.")],
    prices: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="KIND=USD", help="New price per million tokens of a kind; repeat for more."),
    ] = None,
    percent: Annotated[
        int, typer.Option(min=-100, max=1000, help="Percent added to (10) or subtracted from (-10) every price.")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Replace without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the effect, and change nothing.")] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Replace a price card from now on, in one transaction. Shows the cost at last month's usage first."""
    now = datetime.now(UTC)
    with one_line_errors(), ExitStack() as stack:
        opened = stack.enter_context(open_installation(data, store_url, os.environ))
        with opened.database.session() as session:
            before = card_of_price(get_price(session, old))
            known = load_cards(session)
        if not before.is_valid_at(now):
            raise InvalidRequest(f"the card {old!r} does not hold now; replace the one that does", param="old")
        change = PriceChange(before, _changed(before, version, prices or [], percent, now))
        name, month = last_month(now)
        costs = change_costs(opened.store, [change], known, month, now)
        found = PriceRefresh(f"card {version}", name, (change,), costs, ())
        if show_effect(found, as_json=as_json, dry_run=dry_run, yes=yes):
            replace_changed(opened.database, Author("tollkeeper", now), found.changes)


def _changed(before: PriceCard, version: str, prices: list[str], percent: int, now: datetime) -> PriceCard:
    """Return the new card: the old one with `percent` added to all prices, then with the given prices replaced."""
    if not prices and not percent:
        raise InvalidRequest("nothing would change; give --price or --percent", param="price")
    after = adjusted(before, before.tenant, percent) if percent else before
    rates = {**after.rates, **dict(_rate(text) for text in prices)}
    try:
        return replace(after, version=version, rates=rates, valid_from=now)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param="price") from error


def _rate(text: str) -> tuple[Leaf, int]:
    kind, _, amount = text.partition("=")
    if kind not in LEAVES:
        raise InvalidRequest(f"{kind[:40]!r} is not a kind of token; use one of {', '.join(LEAVES)}", param="price")
    try:
        return kind, pico_usd_per_token(Decimal(amount))
    except (InvalidOperation, ValueError) as error:
        raise InvalidRequest(
            f"the price of {kind} is {amount[:40]!r}, which is not an amount in USD", param="price"
        ) from error
