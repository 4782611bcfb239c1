"""`tollkeeper prices refresh`: follows changes of providers' list prices, whose effect is shown first."""

import os
from collections.abc import Collection
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from analytics.cost.periods import month_of
from analytics.prices.catalogue import catalogue_version
from analytics.prices.listing import as_new_price, bought_under_one_name, sold_models
from analytics.prices.litellm_table import LitellmTable
from analytics.prices.refresh import ChangeCost, PriceChange, change_costs, price_changes, rates_changed
from backends.control.changes import Author
from backends.control.prices import load_cards, replace_price
from backends.signatures import check_signature
from contracts.errors import InvalidRequest
from contracts.pricing.money import usd
from contracts.rules.periods import zone_of
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

_COLUMNS = ("model", "provider", "tenant", "change", "requests", "usd_before", "usd_after", "difference_usd")


def refresh(
    litellm: Annotated[
        Path | None,
        typer.Option("--litellm", help="LiteLLM's price table as a file, for models that the price list lacks."),
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(help="Ed25519 signature of that file (64 bytes, as `openssl pkeyutl -sign` writes).")
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(
            help="PEM file of the public key that must have signed it.", envvar="TOLLKEEPER_PRICES_PUBLIC_KEY"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Replace the cards without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what changes, and change nothing.")] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Replace imported price cards whose list price has changed. Shows the cost at last month's usage first."""
    now = datetime.now(UTC).replace(microsecond=0)
    last = now.replace(day=1) - timedelta(days=1)
    month = month_of(last.year, last.month, zone_of("UTC"))
    with one_line_errors(), ExitStack() as stack:
        if litellm is not None and public_key is not None:
            check_signature(litellm, signature, public_key)
        elif signature is not None:
            raise InvalidRequest("a signature needs --litellm and --public-key", param="signature")
        table = None if litellm is None else LitellmTable.read(litellm)
        opened = stack.enter_context(open_installation(data, store_url, os.environ))
        with opened.database.session() as session:
            known = load_cards(session)
            sold, refused = bought_under_one_name(sold_models(session))
        changes, more = price_changes(sold, known, table, now)
        costs = change_costs(opened.store, changes, known, month, now)
        for why in [*refused, *more]:
            typer.echo(why, err=True)
        rows = [_row(change, costs[change.old.version]) for change in changes]
        if as_json:
            print_json({"list": _list_name(table), "month": f"{last:%Y-%m}", "changes": rows})
        else:
            empty = f"no list price has changed ({_list_name(table)})"
            print_table(_COLUMNS, rows, lambda row, column: str(row[column]), empty)
            _print_total(costs.values(), f"{last:%Y-%m}")
        if not changes or dry_run:
            return
        if not yes and not typer.confirm("Replace these cards now?", err=True):
            raise typer.Exit(1)
        with opened.database.session() as session:
            for change in changes:
                replace_price(session, Author("tollkeeper", now), change.old.version, as_new_price(change.new))


def _list_name(table: LitellmTable | None) -> str:
    return catalogue_version() if table is None else f"{catalogue_version()}, {table.version}"


def _row(change: PriceChange, cost: ChangeCost) -> dict[str, object]:
    return {
        "model": change.old.model,
        "provider": change.old.provider,
        "tenant": change.old.tenant,
        "change": rates_changed(change),
        "requests": cost.requests,
        "usd_before": format(usd(cost.old_pico_usd), "f"),
        "usd_after": format(usd(cost.new_pico_usd), "f"),
        "difference_usd": format(usd(cost.difference_pico_usd), "f"),
        "unpriced_requests": cost.unpriced_requests,
        "replaces": change.old.version,
        "version": change.new.version,
        "valid_from": change.new.valid_from.isoformat(),
    }


def _print_total(costs: Collection[ChangeCost], month: str) -> None:
    total = sum((cost.difference_pico_usd for cost in costs), 0)
    if costs:
        typer.echo(f"at the usage of {month}: {usd(total):+f} USD a month")
