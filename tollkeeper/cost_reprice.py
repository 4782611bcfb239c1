"""`tollkeeper cost reprice`: what past usage would cost at current price cards, or at a hypothetical one."""

import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from analytics.cost.question import CostQuestion
from analytics.prices.catalogue import catalogue_cards
from analytics.prices.repricing import reprice, repricing_as_json
from analytics.prices.usage_groups import LEVELS
from backends.control.prices import load_cards
from contracts.errors import NotFound
from contracts.pricing.prices import AnyCard, PriceBook
from tollkeeper.cost_range import UTC_NAME, From, Month, Team, Tenant, TimeZone, To, asked_range
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table


def reprice_command(
    card: Annotated[
        str,
        typer.Option(
            help="A price card's version, or PROVIDER:MODEL of the price list, such as openai:gpt-5 "
            "(default: all current cards)."
        ),
    ] = "",
    model: Annotated[str, typer.Option(help="Model whose usage to price; required with PROVIDER:MODEL.")] = "",
    by: Annotated[str, typer.Option(help=f"Levels, outermost first: {', '.join(LEVELS)}.")] = "tenant,model",
    begin: From = "",
    end: To = "",
    month: Month = "",
    tz: TimeZone = UTC_NAME,
    tenant: Tenant = "",
    team: Team = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Compute what past usage would cost at other prices. Changes nothing."""
    now = datetime.now(UTC)
    with one_line_errors():
        period, zone = asked_range(begin, end, month, tz, now)
        question = CostQuestion(
            *(period.start, period.end, tuple(level for level in by.split(",") if level), None, zone),
            tenant=tenant or None,
            team=team or None,
            asked_at=now,
        )
        with open_installation(data, store_url, os.environ) as opened:
            with opened.database.session() as session:
                cards = load_cards(session)
            answer = reprice(opened.store, question, cards, _candidate(card, model, cards, now))
    shown = repricing_as_json(answer)
    if as_json:
        print_json(shown)
        return
    columns = (*question.by, "requests", "recorded_usd", "repriced_usd", "difference_usd", "repriced_unpriced_requests")
    lines: Any = shown["lines"]
    print_table(columns, lines, lambda row, column: str(row[column]), "no requests in this time")
    total: Any = shown["total"]
    typer.echo(f"total: {total['recorded_usd']} USD as recorded, {total['repriced_usd']} USD as priced here")


def _candidate(name: str, model: str, cards: list[AnyCard], now: datetime) -> AnyCard | None:
    if not name:
        return None
    known = next((card for card in cards if card.version == name), None)
    if known is not None:
        return known
    provider, colon, upstream = name.partition(":")
    if not colon or not model:
        raise NotFound(
            f"no card has the version {name!r}; name one, or PROVIDER:MODEL of the price list together with --model"
        )
    listed = PriceBook(catalogue_cards(provider, upstream, model=model)).card_for(model, "", now)
    if listed is None:
        raise NotFound(f"the price list has no price for {name!r} now")
    return listed
