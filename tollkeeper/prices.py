"""`tollkeeper prices`: price cards, and their import from the built-in list of providers' prices."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from analytics.prices.catalogue import catalogue_cards
from analytics.prices.listing import (
    SoldModel,
    adjusted,
    as_new_price,
    bought_under_one_name,
    compatible_cards,
    listed_cards,
    missing_cards,
    sold_models,
    without_card,
)
from analytics.prices.litellm_table import LitellmTable
from backends.control.changes import Author
from backends.control.prices import create_price, load_cards
from contracts.errors import TollkeeperError
from contracts.metering.usage import Leaf
from contracts.pricing.prices import PriceCard
from tollkeeper.control_client import ControlClient
from tollkeeper.open_installation import open_control
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.prices_refresh import refresh
from tollkeeper.prices_replace import replace_command
from tollkeeper.printing import one_line_errors, print_json, print_record, print_table
from tollkeeper.resources.apps import group_of, in_record, read_object
from tollkeeper.resources.table import BY_NAME

app = group_of("prices", without=("show",))
app.command("refresh")(refresh)
app.command("replace")(replace_command)

Litellm = Annotated[
    Path | None,
    typer.Option("--litellm", help="LiteLLM's price table as a file, for models that the price list lacks."),
]


@app.command("show")
def show(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A card's version, or a provider such as openai.")],
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="With a provider: its model in the built-in price list.")
    ] = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show a price card; with PROVIDER and MODEL, the entry of the built-in price list."""
    with one_line_errors():
        if model:
            cards = catalogue_cards(version, model)
            _print(list(cards), as_json, "no price")
            return
        with ControlClient.of_installation(data, control_url) as client:
            found = read_object(client, BY_NAME["prices"], version, {})
    if as_json:
        print_json(found)
    else:
        print_record({name: in_record(value) for name, value in found.items()})


@app.command("import")
def import_list(
    litellm: Litellm = None,
    tenant: Annotated[str, typer.Option(help="Only for this tenant (default: for all).")] = "",
    percent: Annotated[
        int, typer.Option(min=-100, max=1000, help="Percent added to (10) or subtracted from (-10) the list price.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be imported, and import nothing.")
    ] = False,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Create a price card for every hosted model without one. Existing cards stay unchanged."""
    now = datetime.now(UTC)
    listed: list[PriceCard] = []
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        table = None if litellm is None else LitellmTable.read(litellm)
        known = load_cards(session)
        all_sold, refused = bought_under_one_name(without_card(sold_models(session), known, now, tenant))
        for sold in all_sold:
            listed += missing_cards(_listed(sold, table, refused, tenant), known, now, tenant)
        made, without_room = compatible_cards([adjusted(card, tenant, percent) for card in listed], known)
        for card in [] if dry_run else made:
            create_price(session, Author("tollkeeper", now), as_new_price(card))
    for why in [*refused, *without_room]:
        typer.echo(why, err=True)
    _print(made, as_json, "no card is missing" if not (refused or without_room) else "nothing was imported")


def _listed(sold: SoldModel, table: LitellmTable | None, refused: list[str], tenant: str) -> tuple[PriceCard, ...]:
    try:
        return listed_cards(sold, table)
    except TollkeeperError as error:
        which = "stays unpriced" if not tenant else f"gets no card of {tenant}"
        refused.append(f"{sold.model} of {sold.provider} ({sold.upstream}) {which}: {error.message}")
        return ()


def _print(cards: list[PriceCard], as_json: bool, empty: str) -> None:
    rows = [
        {
            "version": card.version,
            "source": card.version.partition("/")[0],
            "model": card.model,
            "from": card.valid_from.date().isoformat(),
            "to": "" if card.valid_to is None else card.valid_to.date().isoformat(),
            "usd_per_mtok": _usd_per_mtok(card.rates),
            "tiers": {str(tier.above_input_tokens): _usd_per_mtok(tier.rates) for tier in card.tiers},
            "service_tiers": {name: _usd_per_mtok(rates) for name, rates in sorted(card.service_tiers.items())},
        }
        for card in cards
    ]
    if as_json:
        print_json(rows)
        return
    columns = ["version", "from", "to", "usd_per_mtok"]
    columns += [name for name in ("tiers", "service_tiers") if any(row[name] for row in rows)]
    print_table(columns, rows, lambda row, column: _cell(row[column]), empty)


def _usd_per_mtok(rates: Mapping[Leaf, int]) -> dict[str, str]:
    return {leaf: format(Decimal(rate).scaleb(-6).normalize(), "f") for leaf, rate in rates.items()}


def _cell(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    parts = (f"{name}: {_cell(part)}" if isinstance(part, dict) else f"{name}={part}" for name, part in value.items())
    return ("; " if any(isinstance(part, dict) for part in value.values()) else " ").join(parts)
