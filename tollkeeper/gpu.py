"""`tollkeeper gpu`: the ledger of GPU time, and its cost by category and payer."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from algorithms.gpu_time.ledger import LedgerLines
from analytics.cost.periods import moment, time_zone
from analytics.gpu.books import gpu_books, unknown_hours_note
from analytics.gpu.cost import gpu_cost, gpu_cost_as_json
from analytics.gpu.idle import IdlePolicy, idle_policy
from analytics.gpu.ledger import gpu_ledger, ledger_as_json, lines_as_json
from analytics.scope import Period
from backends.control.rates import load_rates
from contracts.errors import InvalidRequest
from contracts.pricing.money import usd
from tollkeeper.cost_range import UTC_NAME, TimeZone, To, asked_range
from tollkeeper.gpu_cards import compare_command, fit_command, variance_command
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="GPU time: ledger, cost, standard cost cards.", no_args_is_help=True)

_IDLE_WORDS: Final[Mapping[IdlePolicy, str]] = {
    "platform": "the operator pays for idle time",
    "use": "tenants pay for idle time in proportion to their use",
    "reservation": "tenants pay for idle time in proportion to their reservation",
    "peak": "tenants pay for idle time in proportion to their largest demand",
}

app.command("fit")(fit_command)
app.command("variance")(variance_command)
app.command("compare")(compare_command)

From = Annotated[str, typer.Option("--from", help="Start date or time (default: --hours before the end).")]
Hours = Annotated[float, typer.Option("--hours", min=0.01, max=72, help="Look-back window in hours, without --from.")]


@app.command("ledger")
def ledger(
    begin: From = "",
    end: To = "",
    hours: Hours = 1,
    tz: TimeZone = UTC_NAME,
    minutes: Annotated[
        bool, typer.Option("--minutes/--no-minutes", help="Also list every minute of every GPU.")
    ] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show how GPU time was used, to the nanosecond; unexplained time is a line of its own."""
    with one_line_errors():
        period = _period(begin, end, hours, tz)
        with open_installation(data, store_url, os.environ) as opened:
            answer = gpu_ledger(opened.store, period)
    if as_json:
        print_json(ledger_as_json(answer, minutes=minutes))
        return
    rows = [{"GPU": device, **_shares(lines)} for device, lines in answer.by_device().items()]
    columns = ("GPU", "hours", *(name for name in _shares(LedgerLines()) if name != "hours"))
    print_table(columns, rows, lambda row, column: str(row[column]), "no engine reported a step in this time")
    if answer.missing_steps:
        typer.echo(f"{answer.missing_steps} step records are missing: their time is unexplained")
    if answer.repeated_steps:
        typer.echo(f"{answer.repeated_steps} step records arrived more than once: their time is counted more than once")


@app.command("cost")
def cost(
    begin: From = "",
    end: To = "",
    hours: Hours = 1,
    tz: TimeZone = UTC_NAME,
    idle: Annotated[
        str,
        typer.Option(
            help="Who pays for idle time. platform: the operator of this installation. Or split among tenants: use (by "
            "their use), reservation (by `--reserve`), peak (by their share of the largest demand)."
        ),
    ] = "platform",
    reserve: Annotated[
        list[str] | None, typer.Option(help="A tenant's share of the GPUs, such as acme=0.4; repeat for more.")
    ] = None,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the cost of GPU time by category and tenant, at the rates valid at the time (`tollkeeper rates`)."""
    with one_line_errors():
        policy, reserved = idle_policy(idle), _reserved(reserve or [])
        if bool(reserved) != (policy == "reservation"):
            raise InvalidRequest("--reserve and --idle reservation must be used together")
        period = _period(begin, end, hours, tz)
        with open_installation(data, store_url, os.environ) as opened:
            with opened.database.session() as session:
                rates = load_rates(session)
            books = gpu_books(opened.store, period)
        answer = gpu_cost(books.ledger, books.use, rates, books.models, policy, reserved)
    if as_json:
        print_json(gpu_cost_as_json(answer))
        return
    typer.echo(f"total: {usd(answer.total_pico_usd):.6f} USD; {_IDLE_WORDS[answer.policy]}")
    rows = [
        {
            "paid by": one.tenant,
            "USD": f"{usd(one.total_pico_usd):.6f}",
            "of which idle time": f"{usd(one.idle_pico_usd):.6f}",
        }
        for one in answer.tenants
    ]
    rows.append(
        {
            "paid by": "(operator)",
            "USD": f"{usd(answer.platform_pico_usd):.6f}",
            "of which idle time": f"{usd(answer.platform_idle_pico_usd):.6f}",
        }
    )
    print_table(("paid by", "USD", "of which idle time"), rows, lambda row, column: str(row[column]), "")
    if answer.unrated_ns:
        typer.echo(
            f"{answer.unrated_ns / 3.6e12:.2f} GPU hours have no rate; create one with `tollkeeper rates create`"
        )
    if answer.unrated_cpu_ns:
        typer.echo(
            f"{answer.unrated_cpu_ns / 3.6e12:.2f} hours of engines without a GPU have no rate; "
            "create one with `tollkeeper rates create --subject cpu`"
        )
    if answer.unknown_hours:
        typer.echo(unknown_hours_note(answer.unknown_hours))


def _period(begin: str, end: str, hours: float, tz: str) -> Period:
    """Return the period: it starts at --from, else --hours before its end, which is --to or now."""
    now = datetime.now(UTC)
    if begin:
        return asked_range(begin, end, "", tz, now)[0]
    until = moment(end, time_zone(tz), "to") if end else now
    return Period(until - timedelta(hours=hours), until)


def _reserved(written: list[str]) -> dict[str, float]:
    found = {}
    for text in written:
        tenant, _, share = text.partition("=")
        try:
            found[tenant] = float(share)
        except ValueError as error:
            raise InvalidRequest(
                f"{text!r} is not a reservation; write TENANT=SHARE, such as acme=0.4", param="reserve"
            ) from error
        if not 0 < found[tenant] <= 1:
            raise InvalidRequest(f"{text!r}: a share is above 0 and at most 1", param="reserve")
    if sum(found.values()) > 1 + 1e-9:
        raise InvalidRequest(f"the reservations sum to {sum(found.values()):g}; at most 1 can be reserved")
    return found


def _shares(lines: LedgerLines) -> dict[str, str]:
    figures = lines_as_json(lines)
    wall = lines.wall_ns
    return {
        "hours": f"{wall / 3.6e12:.3f}",
        **{
            name.removesuffix("_ns"): f"{100 * amount / wall:.2f}%" if wall else ""
            for name, amount in figures.items()
            if name != "wall_ns" and isinstance(amount, int)
        },
    }
