"""`tollkeeper top`: shows live figures in a terminal, or prints them once as text or JSON."""

import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.location import StoreLocation
from contracts.errors import TollkeeperError
from tollkeeper.gateway_client import metrics_token
from tollkeeper.installation import Installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, GatewayUrl, StoreUrl
from tollkeeper.ports import Ports
from tollkeeper.printing import one_line_errors, print_json
from tollkeeper.replay.command import find_gateway
from tollkeeper.top.page import PagePair
from tollkeeper.top.picture import Picture, picture
from tollkeeper.top.spend import TenantSpend, spend_by_tenant
from tollkeeper.top.tables import TextTable, tables, tiles
from tollkeeper.top.watch import Watch, metrics_urls

_FILE_COLUMNS: Final = 160  # width of text in a file or pipe


def top_command(
    data: Data = DEFAULT_DATA,
    gateway_url: GatewayUrl = "",
    store_url: StoreUrl = "",
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between refreshes.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once as text and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show live figures: requests, tokens, latency, engines, GPUs, queues, spending by tenant."""
    with one_line_errors():
        urls = metrics_urls(find_gateway(data, gateway_url), os.environ)
        token = metrics_token(data)
        store = StoreClient(_store_address(data, store_url))
        try:
            with Watch(urls, token) as watch:
                if once or as_json or not sys.stdout.isatty():
                    _print_once(watch, store, interval, as_json)
                else:
                    _live(watch, store, interval)
        finally:
            store.close()


def _live(watch: Watch, store: StoreClient, interval: float) -> None:
    # Imported here: Textual takes a third of a second, and only this view needs it
    from tollkeeper.top.app import TopApp

    TopApp(watch.read, lambda: spend_by_tenant(store, datetime.now(UTC)), interval).run()


def _print_once(watch: Watch, store: StoreClient, interval: float, as_json: bool) -> None:
    earlier = watch.read()
    time.sleep(interval)  # rates are differences of two readings
    found = picture(PagePair(earlier, watch.read()))
    spend: tuple[TenantSpend, ...] | None = None
    missing = ""
    try:
        spend = spend_by_tenant(store, datetime.now(UTC))
    except TollkeeperError as error:
        missing = error.message
    if as_json:
        print_json(as_dict(found, spend, missing))
        return
    console = Console() if sys.stdout.isatty() else Console(width=_FILE_COLUMNS)
    headline = "   ".join(f"{name} {value}" for name, value in tiles(found.traffic))
    console.print(headline, highlight=False, soft_wrap=True)
    for table in tables(found, spend, missing):
        _print_table(console, table)


def as_dict(found: Picture, spend: tuple[TenantSpend, ...] | None, missing: str = "") -> dict[str, object]:
    """Return all figures as JSON types; unknown values are null, money is decimal text."""
    tenants = None if spend is None else [_spend_as_dict(one) for one in spend]
    return {**asdict(found), "tenants": tenants, "tenants_missing": missing or None}


def _spend_as_dict(spend: TenantSpend) -> dict[str, object]:
    money = {
        name: None if value is None else str(value)
        for name, value in (("usd_today", spend.usd_today), ("usd_month", spend.usd_month))
    }
    return {**asdict(spend), **money}


def _print_table(console: Console, table: TextTable) -> None:
    if not table.rows:
        console.print(Text(f"{table.title}: {table.empty}"))
        return
    shown = Table(title=table.title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for at, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if at < table.labels else "right")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    console.print(shown)


def _store_address(data: Path, store_url: str) -> StoreAddress:
    default = f"http://127.0.0.1:{Ports.from_environment(os.environ).store_http}"
    url = store_url or Installation(data).address_of("store") or default
    database = os.environ.get("TOLLKEEPER_STORE_DATABASE", "tollkeeper")
    given = StoreAddress.resolve(
        url,
        database,
        "reader",
        SecretFiles(data / "secrets"),
        user=os.environ.get("TOLLKEEPER_STORE_USER") or None,
        password=os.environ.get("TOLLKEEPER_STORE_PASSWORD") or None,
    )
    return StoreLocation(data).current(given)
