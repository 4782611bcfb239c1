"""`tollkeeper prices refresh`: replaces imported cards whose list price has changed, after showing the effect."""

import os
from collections.abc import Collection
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from analytics.prices.litellm_table import read_signed
from analytics.prices.refresh import (
    ChangeCost,
    PriceChange,
    PriceRefresh,
    price_refresh,
    rates_changed,
    replace_changed,
)
from backends.control.changes import Author
from contracts.pricing.money import usd
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
    with one_line_errors(), ExitStack() as stack:
        table = read_signed(litellm, signature, public_key)
        opened = stack.enter_context(open_installation(data, store_url, os.environ))
        found = price_refresh(opened.store, opened.database, table, now)
        for why in found.refused:
            typer.echo(why, err=True)
        if show_effect(found, as_json=as_json, dry_run=dry_run, yes=yes):
            replace_changed(opened.database, Author("tollkeeper", now), found.changes)


def show_effect(found: PriceRefresh, *, as_json: bool, dry_run: bool, yes: bool) -> bool:
    """Print the price changes and their effect on cost. Return whether to apply them; raises Exit if declined."""
    rows = [_row(change, found.costs[change.old.version]) for change in found.changes]
    if as_json:
        print_json({"list": found.list_name, "month": found.month, "changes": rows})
    else:
        empty = f"no list price has changed ({found.list_name})"
        print_table(_COLUMNS, rows, lambda row, column: str(row[column]), empty)
        _print_total(found.costs.values(), found.month)
    if not found.changes or dry_run:
        return False
    if not yes and not typer.confirm("Replace now?", err=True):
        raise typer.Exit(1)
    return True


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
