"""`tollkeeper retention`: how long rows of each table are kept, in general and by tenant."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from backends.store.retention import DAY_SECONDS, apply_rules, list_rules, set_rule, set_table_days
from backends.store.tables import list_tables
from contracts.errors import ConfigurationError
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="How long rows of each table are kept before they are deleted.", no_args_is_help=True)

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="Table, such as requests or content; `list` shows them.")
]


@app.command("set")
def set_days(
    table: TableName,
    days: Annotated[int | None, typer.Option(min=1, help="Days to keep rows.")] = None,
    tenant: Annotated[str, typer.Option(help="Only this tenant's rows (default: all tenants).")] = "",
    default: Annotated[bool, typer.Option("--default", help="Remove a tenant's rule.")] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
) -> None:
    """Set a table's retention. The store applies it itself; a single tenant's rule needs a daily `retention apply`."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        if (days is None) != default or (default and not tenant):
            raise ConfigurationError("give --days N, or --tenant TENANT with --default")
        if tenant:
            set_rule(opened.store, tenant, table, days)
        else:
            assert days is not None
            set_table_days(opened.store, table, days)
    whom = f"tenant {tenant}" if tenant else "all tenants"
    typer.echo(f"{table} keeps rows of {whom} " + (f"for {days} days" if days else "as long as those of all tenants"))


@app.command("list")
def list_all(data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the tables' retention and the tenants' rules.

    Retention counts from the time of a row, or from its arrival in the store if that is later.
    """
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        rows: list[dict[str, Any]] = [
            {"table": table.name, "tenant": "", "keeps": table.kept_words} for table in list_tables(opened.store)
        ]
        rows += [
            {"table": rule.table, "tenant": rule.tenant, "keeps": f"{rule.keep_seconds // DAY_SECONDS} days"}
            for rule in list_rules(opened.store)
            if rule.keep_seconds
        ]
    if as_json:
        print_json(rows)
    else:
        named = [{**row, "tenant": row["tenant"] or "all"} for row in rows]
        print_table(("table", "tenant", "keeps"), named, _cell, "no tables; run `python -m migrations`")


@app.command("apply")
def apply(data: Data = DEFAULT_DATA, store_url: StoreUrl = "") -> None:
    """Delete rows that are older than tenants' rules allow. Run it once a day, by cron or a timer."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        rows = apply_rules(opened.store, datetime.now(UTC), typer.echo)
    typer.echo(f"{rows} rows deleted")


def _cell(row: Mapping[str, Any], column: str) -> str:
    return str(row[column])
