"""`tollkeeper limits`: how much tenants, teams, keys or users may use at a time, through the control plane's HTTP."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

import typer

from contracts.rules.rule_words import METRICS_BY_WORD, MetricWord, amount_text, base_amount
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.rules import (
    LIMIT_LEVELS,
    Model,
    Subject,
    Tenant,
    TenantOfRule,
    WhenAway,
    WhenUnpriced,
    find_path,
    path_of,
    refuse_no_change,
    scope_text,
    whole_number,
)
from tollkeeper.tenants import control_port

app = typer.Typer(help="Rate and concurrency limits.", no_args_is_help=True)

LimitId = Annotated[str, typer.Argument(metavar="ID", help="The limit's id, lim_...; `list` and refusals show it.")]


@app.command("create")
def create(
    tenant: Tenant,
    metric: Annotated[
        str, typer.Option(help="requests, input_tokens, output_tokens, tokens, concurrency, gpu_ms or usd.")
    ],
    amount: Annotated[str, typer.Option(help="In the metric's unit; usd takes decimals, such as 0.50.")],
    window: Annotated[
        str, typer.Option(help="second, minute, hour or day; none for concurrency and for level conversation.")
    ] = "",
    level: Annotated[str, typer.Option(help=f"Who shares it: {LIMIT_LEVELS}.")] = "tenant",
    subject: Subject = "",
    model: Model = "",
    when_away: WhenAway = "share",
    when_unpriced: WhenUnpriced = "refuse",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create a limit. Gateways hold to it within a second."""
    body = {
        "level": level,
        "subject": subject,
        "model": model or None,
        "metric": metric,
        "window": window or None,
        **_amount(metric, amount),
        "when_away": when_away,
        "when_unpriced": when_unpriced,
    }
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        created = client.post(path_of("limit", tenant), body)
    if as_json:
        print_json(created)
    else:
        typer.echo(f"limit {created['id']} of tenant {tenant} created: {_described(created)}")


@app.command("list")
def list_all(tenant: Tenant, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List a tenant's limits."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        limits = client.get_all(path_of("limit", tenant))
    if as_json:
        print_json(limits)
    else:
        columns = ("id", "allows", "whom")
        print_table(
            columns, limits, _cell, f"no limits; tollkeeper limits create {tenant} --metric M --amount N --window W"
        )


@app.command("set")
def change(
    limit: LimitId,
    amount: Annotated[str, typer.Option(help="What it allows from now on, in its metric's unit.")] = "",
    when_away: WhenAway = "",
    when_unpriced: WhenUnpriced = "",
    tenant: TenantOfRule = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Change how much a limit allows; what it has counted stays. For another scope or window create another."""
    changes = {"amount": amount, "when_away": when_away, "when_unpriced": when_unpriced}
    body: dict[str, Any] = {name: value for name, value in changes.items() if value}
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        refuse_no_change(body, "--amount, --when-away, --when-unpriced")
        path = find_path(client, "limit", limit, tenant)
        if amount:
            del body["amount"]
            body |= _amount(client.get(path)["metric"], amount)
        changed = client.patch(path, body)
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"limit {changed['id']} of tenant {changed['tenant_id']} set: {_described(changed)}")


@app.command("delete")
def delete(
    limit: LimitId,
    tenant: TenantOfRule = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Delete a limit, and with it what it has counted."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        deleted = client.delete(find_path(client, "limit", limit, tenant))
    if as_json:
        print_json(deleted)
    else:
        typer.echo(f"limit {deleted['id']} deleted")


def _amount(metric: str, amount: str) -> dict[str, object]:
    return {"amount_usd": amount} if metric == "usd" else {"amount": whole_number(amount)}


def _described(limit: Mapping[str, Any]) -> str:
    return f"{_allowed(limit)}, {scope_text(limit)}"


def _allowed(limit: Mapping[str, Any]) -> str:
    word: MetricWord = limit["metric"]
    in_usd = None if limit["amount_usd"] is None else Decimal(limit["amount_usd"])
    amount = amount_text(METRICS_BY_WORD[word], base_amount(word, limit["amount"], in_usd))
    return amount + (f" per {limit['window']}" if limit["window"] else "")


def _cell(limit: Mapping[str, Any], column: str) -> str:
    if column == "allows":
        return _allowed(limit)
    return scope_text(limit) if column == "whom" else str(limit[column])
