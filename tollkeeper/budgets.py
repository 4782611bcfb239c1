"""`tollkeeper budgets`: the usual commands of a resource, `show` with the budget's state, and `recount`."""

from typing import Annotated, Any, Final

import typer

from contracts.access.person import person_of
from contracts.errors import ConfigurationError
from tollkeeper.budget_page import print_budget
from tollkeeper.commands import LazyCommand, add_lazily
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json
from tollkeeper.resources.apps import change_object, examples_of, group_of, help_of, read_object, whole_number
from tollkeeper.resources.table import BY_NAME
from tollkeeper.resources.words import budget_line

_BUDGETS: Final = BY_NAME["budgets"]
app = group_of("budgets", without=("show", "set"))

# loaded only when called: it imports the store's client
LAZY: Final = (
    LazyCommand(
        "recount",
        "tollkeeper.budget_recount",
        "recount_command",
        "Recalculate a budget's spending from the stored requests of its period.",
    ),
)
add_lazily(app, LAZY)

BudgetId = Annotated[str, typer.Argument(metavar="ID", help="The budget's id, bud_...; `list` and refusals show it.")]
TenantOption = Annotated[str, typer.Option("--tenant", help="The tenant it belongs to (default: found by the id).")]


@app.command("show", help=help_of(_BUDGETS, "show"), epilog=examples_of(_BUDGETS, "show"))
def show(
    budget: BudgetId,
    tenant: TenantOption = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show a budget's state."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        found = read_object(client, _BUDGETS, budget, {"tenant": tenant} if tenant else {})
    if as_json:
        print_json(found)
    else:
        print_budget(found, budget_line(found))


@app.command("set", help=help_of(_BUDGETS, "set"), epilog=examples_of(_BUDGETS, "set"))
def change(
    budget: BudgetId,
    usd: Annotated[str, typer.Option("--usd", help="Amount in USD, such as 50 or 0.25.")] = "",
    gpu_ms: Annotated[str, typer.Option("--gpu-ms", help="Amount in GPU milliseconds, such as 3600000.")] = "",
    is_hard: Annotated[
        bool | None, typer.Option("--hard/--soft", help="Refuse requests beyond it, or only notify.")
    ] = None,
    thresholds: Annotated[
        list[str] | None,
        typer.Option("--threshold", help="Percent at which to notify; repeat for more, in rising order."),
    ] = None,
    no_thresholds: Annotated[bool, typer.Option("--no-thresholds", help="Remove all thresholds.")] = False,
    channels: Annotated[
        list[str] | None, typer.Option("--channel", help="Alert channel to notify at thresholds; repeat for more.")
    ] = None,
    no_channels: Annotated[bool, typer.Option("--no-channels", help="Notify no alert channel.")] = False,
    webhook: Annotated[
        str | None, typer.Option("--webhook", help="URL that gets a signed POST at each threshold; '': none.")
    ] = None,
    ends_at: Annotated[str, typer.Option(help="End, such as 2027-12-31T00:00:00Z.")] = "",
    endless: Annotated[bool, typer.Option("--endless", help="Remove the end.")] = False,
    when_away: Annotated[
        str, typer.Option(help="If Redis is unreachable: refuse, or share (each gateway allows its part).")
    ] = "",
    when_unpriced: Annotated[str, typer.Option(help="If a model has no price: refuse or allow its requests.")] = "",
    tenant: TenantOption = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Change a budget."""
    percents = [whole_number(threshold.removesuffix("%")) for threshold in thresholds or []]
    stated = {
        "amount_usd": usd or None,
        "gpu_milliseconds": whole_number(gpu_ms) if gpu_ms else None,
        "is_hard": is_hard,
        "thresholds": percents if thresholds or no_thresholds else None,
        "channels": channels or [] if channels or no_channels else None,
        "webhook_url": webhook,
        "ends_at": ends_at or None,
        "when_away": when_away or None,
        "when_unpriced": when_unpriced or None,
    }
    body: dict[str, Any] = {name: value for name, value in stated.items() if value is not None}
    if endless:
        body["ends_at"] = None
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        if (endless and ends_at) or (no_thresholds and thresholds) or (no_channels and channels):
            raise ConfigurationError(
                "--endless contradicts --ends-at, --no-thresholds --threshold, and --no-channels --channel; give one"
            )
        changed = change_object(client, _BUDGETS, budget, {"tenant": tenant} if tenant else {}, body)
    if as_json:
        print_json(changed)
    elif changed["proposal"]:
        typer.echo(
            f"budget {changed['id']} of tenant {changed['tenant_id']} stays {budget_line(changed)}: "
            f"{person_of(changed['proposed_by'])} proposed a change, and another person must run the same command"
        )
    else:
        typer.echo(f"budget {changed['id']} of tenant {changed['tenant_id']} set: {budget_line(changed)}")
