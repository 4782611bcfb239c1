"""`tollkeeper budgets`: how much money or GPU time may be used in a day, week or month, through the control plane."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from contracts.errors import ConfigurationError
from tollkeeper.budget_page import print_budget
from tollkeeper.commands import LazyCommand, add_lazily
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.rules import (
    BUDGET_LEVELS,
    Model,
    Subject,
    Tenant,
    TenantOfRule,
    WhenAway,
    WhenUnpriced,
    find_path,
    path_of,
    plain_usd,
    refuse_no_change,
    scope_text,
    whole_number,
)
from tollkeeper.tenants import control_port

app = typer.Typer(help="Budgets of money and of GPU time.", no_args_is_help=True)

# It asks the store, which the others do not need.
LAZY: Final = (
    LazyCommand(
        "recount",
        "tollkeeper.budget_recount",
        "recount_command",
        "Set what a budget has spent to what the stored requests of its period cost.",
    ),
)
add_lazily(app, LAZY)

BudgetId = Annotated[str, typer.Argument(metavar="ID", help="The budget's id, bud_...; `list` and refusals show it.")]
Usd = Annotated[str, typer.Option("--usd", help="The amount in USD, such as 50 or 0.25.")]
GpuMilliseconds = Annotated[str, typer.Option("--gpu-ms", help="The amount in GPU milliseconds, instead of --usd.")]
Thresholds = Annotated[
    list[str] | None, typer.Option("--threshold", help="Percent at which to tell; repeat for more, rising.")
]
Webhook = Annotated[str | None, typer.Option("--webhook", help="URL that is told of thresholds by a signed POST.")]
EndsAt = Annotated[str, typer.Option(help="Counts nothing from then on.")]


@app.command("create")
def create(
    tenant: Tenant,
    period: Annotated[str, typer.Option(help="day, week, month or total, in the tenant's time zone.")],
    usd: Usd = "",
    gpu_ms: GpuMilliseconds = "",
    level: Annotated[str, typer.Option(help=f"Who shares it: {BUDGET_LEVELS}.")] = "tenant",
    subject: Subject = "",
    model: Model = "",
    is_hard: Annotated[bool, typer.Option("--hard/--soft", help="Never overspent, or only told.")] = True,
    thresholds: Thresholds = None,
    webhook: Webhook = None,
    starts_at: Annotated[str, typer.Option(help="Counts nothing before, such as 2027-01-31T00:00:00Z.")] = "",
    ends_at: EndsAt = "",
    when_away: WhenAway = "refuse",
    when_unpriced: WhenUnpriced = "refuse",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create a budget. It counts from now on; gateways hold to it within a second."""
    body = {
        "level": level,
        "subject": subject,
        "model": model or None,
        "period": period,
        "amount_usd": usd or None,
        "gpu_milliseconds": whole_number(gpu_ms) if gpu_ms else None,
        "is_hard": is_hard,
        "thresholds": _percents(thresholds or []),
        "starts_at": starts_at or None,
        "ends_at": ends_at or None,
        "webhook_url": webhook or "",
        "when_away": when_away,
        "when_unpriced": when_unpriced,
    }
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        if bool(usd) == bool(gpu_ms):
            raise ConfigurationError("a budget has one amount; give either --usd or --gpu-ms")
        created = client.post(path_of("budget", tenant), body)
    if as_json:
        print_json(created)
    else:
        typer.echo(f"budget {created['id']} of tenant {tenant} created: {_described(created)}")


@app.command("list")
def list_all(tenant: Tenant, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List a tenant's budgets; `show` says how one stands."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        budgets = client.get_all(path_of("budget", tenant))
    if as_json:
        print_json(budgets)
    else:
        columns = ("id", "allows", "whom", "tells at")
        print_table(
            columns, budgets, _cell, f"no budgets; tollkeeper budgets create {tenant} --usd AMOUNT --period month"
        )


@app.command("show")
def show(
    budget: BudgetId,
    tenant: TenantOfRule = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show how a budget stands: spent, reserved, remaining, what it comes to at this pace, thresholds passed."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        shown = client.get(find_path(client, "budget", budget, tenant))
    if as_json:
        print_json(shown)
    else:
        print_budget(shown, _described(shown))


@app.command("set")
def change(
    budget: BudgetId,
    usd: Usd = "",
    gpu_ms: GpuMilliseconds = "",
    is_hard: Annotated[bool | None, typer.Option("--hard/--soft", help="Never overspent, or only told.")] = None,
    thresholds: Thresholds = None,
    no_thresholds: Annotated[bool, typer.Option("--no-thresholds", help="Take all thresholds away.")] = False,
    webhook: Webhook = None,
    ends_at: EndsAt = "",
    endless: Annotated[bool, typer.Option("--endless", help="Take the end away.")] = False,
    when_away: WhenAway = "",
    when_unpriced: WhenUnpriced = "",
    tenant: TenantOfRule = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Change a budget; what is spent stays. --threshold replaces all of them, --webhook '' takes the webhook away."""
    stated = {
        "amount_usd": usd or None,
        "gpu_milliseconds": whole_number(gpu_ms) if gpu_ms else None,
        "is_hard": is_hard,
        "thresholds": _percents(thresholds or []) if thresholds or no_thresholds else None,
        "webhook_url": webhook,
        "ends_at": ends_at or None,
        "when_away": when_away or None,
        "when_unpriced": when_unpriced or None,
    }
    body: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
    if endless:
        body["ends_at"] = None
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        if (endless and ends_at) or (no_thresholds and thresholds):
            raise ConfigurationError("--endless contradicts --ends-at, and --no-thresholds --threshold; give one")
        refuse_no_change(body, "--usd, --gpu-ms, --hard, --soft, --threshold, --webhook, --ends-at, --when-away, ...")
        changed = client.patch(find_path(client, "budget", budget, tenant), body)
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"budget {changed['id']} of tenant {changed['tenant_id']} set: {_described(changed)}")


@app.command("delete")
def delete(
    budget: BudgetId,
    tenant: TenantOfRule = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Delete a budget with what it has counted and the thresholds it passed."""
    with one_line_errors(), ControlClient.of_installation(data, control_url, control_port()) as client:
        deleted = client.delete(find_path(client, "budget", budget, tenant))
    if as_json:
        print_json(deleted)
    else:
        typer.echo(f"budget {deleted['id']} deleted")


def _percents(thresholds: list[str]) -> list[int | str]:
    return [whole_number(threshold.removesuffix("%")) for threshold in thresholds]


def _described(budget: Mapping[str, Any]) -> str:
    return f"{_allowed(budget)}, {scope_text(budget)}"


def _allowed(budget: Mapping[str, Any]) -> str:
    in_usd = budget["amount_usd"]
    amount = f"{plain_usd(in_usd)} USD" if in_usd is not None else f"{budget['gpu_milliseconds']} GPU milliseconds"
    per = "in all" if budget["period"] == "total" else f"per {budget['period']}"
    return f"{amount} {per}, {'hard' if budget['is_hard'] else 'soft'}"


def _cell(budget: Mapping[str, Any], column: str) -> str:
    if column == "allows":
        return _allowed(budget)
    if column == "whom":
        return scope_text(budget)
    if column == "tells at":
        return " ".join(f"{percent}%" for percent in budget["thresholds"])
    return str(budget[column])
