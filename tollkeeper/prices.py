"""`tollkeeper prices`: providers' list prices as cards of this installation, by which its gateways then charge."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from analytics.prices.catalogue import catalogue_cards
from analytics.prices.listing import Sold, as_new_price, listed_cards, not_yet_there, sold_models
from analytics.prices.litellm_table import LitellmTable
from backends.control.changes import Author
from backends.control.prices import create_price, load_cards
from contracts.errors import TollkeeperError
from contracts.prices import PriceBook, PriceCard
from tollkeeper.open_installation import open_control
from tollkeeper.options import DEFAULT_DATA, AsJson, Data
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="Price cards: what providers ask, and what tenants pay.", no_args_is_help=True)

Litellm = Annotated[
    Path | None, typer.Option("--litellm", help="LiteLLM's price table as a file, for what the price list lacks.")
]


@app.command("show")
def show(
    provider: Annotated[str, typer.Argument(help="Such as openai, anthropic, google, aws or azure.")],
    model: Annotated[str, typer.Argument(help="As the provider calls it.")],
    as_json: AsJson = False,
) -> None:
    """Show what the price list says of a provider's model, with the dates on which it changed."""
    with one_line_errors():
        cards = catalogue_cards(provider, model)
    _print(list(cards), as_json, "no price")


@app.command("import")
def import_list(
    litellm: Litellm = None,
    tenant: Annotated[str, typer.Option(help="For this tenant alone, over what all pay.")] = "",
    percent: Annotated[int, typer.Option(min=-100, max=1000, help="Put on (10) or taken off (-10) the list.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be imported.")] = False,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Make a card for every hosted model that has none, so that gateways price it. Cards that hold stay as they are."""
    now = datetime.now(UTC)
    made: list[PriceCard] = []
    refused: list[str] = []
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        table = None if litellm is None else LitellmTable.read(litellm)
        book = PriceBook(card for card in load_cards(session) if not tenant or card.tenant == tenant)
        for sold in sold_models(session):
            cards = _listed(sold, table, refused)
            made += not_yet_there(cards, book, now)
        for card in [] if dry_run else made:
            mark = f"@{tenant}{percent:+d}" if tenant else f"{percent:+d}" if percent else ""
            create_price(session, Author("tollkeeper", now), as_new_price(card, tenant, percent, mark))
    for why in refused:
        typer.echo(why, err=True)
    _print(made, as_json, "every hosted model has a card")


def _listed(sold: Sold, table: LitellmTable | None, refused: list[str]) -> tuple[PriceCard, ...]:
    try:
        return listed_cards(sold, table)
    except TollkeeperError as error:
        refused.append(f"{sold.model} of {sold.provider} stays unpriced: {error.message}")
        return ()


def _print(cards: list[PriceCard], as_json: bool, empty: str) -> None:
    rows = [
        {
            "version": card.version,
            "model": card.model,
            "from": card.valid_from.date().isoformat(),
            "to": "" if card.valid_to is None else card.valid_to.date().isoformat(),
            "usd_per_mtok": {leaf: f"{rate / 10**6:g}" for leaf, rate in card.rates.items()},
            "tiers": {
                str(tier.above_input_tokens): {leaf: f"{rate / 10**6:g}" for leaf, rate in tier.rates.items()}
                for tier in card.tiers
            },
        }
        for card in cards
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("version", "from", "to", "usd_per_mtok")
    print_table(columns, rows, lambda row, column: _cell(row[column]), empty)


def _cell(value: object) -> str:
    return " ".join(f"{leaf}={price}" for leaf, price in value.items()) if isinstance(value, dict) else str(value)
