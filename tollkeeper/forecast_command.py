"""`tollkeeper forecast`, `anomalies` and `savings`: future spending, unusual spending, and how to reduce it."""

import os
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from contracts.errors import InvalidRequest
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl, gpu_hour_usd
from tollkeeper.printing import one_line_errors, print_json, print_table

Tenant = Annotated[str, typer.Option("--tenant", help="Only this tenant (default: all).")]


def forecast_command(
    tenant: Tenant = "",
    days: Annotated[int, typer.Option(min=1, max=92, help="Days to forecast.")] = 30,
    level: Annotated[float, typer.Option(help="Coverage of the interval, 0 to 1.")] = 0.8,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Forecast spending by tenant and for the month, with prediction intervals."""
    from analytics.forecast.spend import forecast_spend  # imported here: numpy would slow down every other command

    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        found = [
            one.as_json()
            for one in forecast_spend(opened.store, datetime.now(UTC), tenant=tenant or None, days=days, level=level)
        ]
    if as_json:
        print_json(found)
        return
    columns = ("tenant", "month", "spent", "expected", "low", "high", "method", "reason")
    print_table(columns, [_month_row(one) for one in found], lambda row, column: str(row[column]), "no spending yet")


def anomalies_command(
    tenant: Tenant = "",
    day: Annotated[
        str,
        typer.Option(
            help="Day (UTC) to check, such as 2026-11-21 (default: yesterday; for today: completed hours only)."
        ),
    ] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """List tenants with unusual spending on a day, by cause: volume, model mix, cache or price."""
    from analytics.anomaly.spend import anomalies_on  # here, as above

    with one_line_errors():
        looked_at = _day(day)
        with open_installation(data, store_url, os.environ) as opened:
            found = anomalies_on(opened.store, datetime.now(UTC), looked_at, tenant=tenant or None)
    if as_json:
        print_json([one.as_json() for one in found])
        return
    rows = [{**one.as_json(), **({} if one.contributor is None else one.contributor.as_json())} for one in found]
    columns = ("tenant", "day", "observed_usd", "expected_usd", "cause", "key", "user", "model", "more_usd")
    print_table(columns, rows, _anomaly_cell, "no tenant had unusual spending")
    if rows:
        typer.echo("key, user and model: who spent most of the increase, and by how much (more_usd)")


def savings_command(
    tenant: Tenant = "",
    days: Annotated[int, typer.Option(min=1, max=31, help="Look-back window in days.")] = 7,
    usd_per_gpu_hour: Annotated[str, typer.Option(help="USD per GPU hour, to price idle replicas.")] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Recommend savings, largest first, with the evidence."""
    from analytics.recommendations.reading import recommendations  # here, as above
    from backends.control.prices import load_cards

    with one_line_errors():
        price = gpu_hour_usd(usd_per_gpu_hour)
        now = datetime.now(UTC)
        with open_installation(data, store_url, os.environ) as opened:
            with opened.database.session() as session:
                cards = load_cards(session)
            found = [
                one.as_json()
                for one in recommendations(
                    opened.store,
                    cards,
                    now,
                    timedelta(days=days),
                    tenant=tenant or None,
                    usd_per_gpu_hour=price,
                )
            ]
    if as_json:
        print_json(found)
        return
    columns = ("saving_usd", "tenant", "model", "action", "caution")
    print_table(columns, found, _cell, "no savings found")
    if found:
        typer.echo(
            f"saving_usd is for the requests of the last {days} days, at current prices; "
            "do not add savings up: two may concern the same request"
        )


def _anomaly_cell(row: Any, column: str) -> str:
    return str(row.get("driver" if column == "cause" else column, ""))


def _cell(row: Any, column: str) -> str:
    value = row[column]
    return "unknown" if value is None else str(value)


def _month_row(found: dict[str, Any]) -> dict[str, object]:
    month = found["month"]
    shown = {name: "unknown" if month[f"{name}_usd"] is None else month[f"{name}_usd"] for name in _FIGURES}
    return {
        "tenant": found["tenant"],
        "month": month["month"],
        "method": found["method"],
        "reason": found["reason"],
        **shown,
    }


_FIGURES = ("spent", "expected", "low", "high")


def _day(text: str) -> Any:
    if not text:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError as error:
        raise InvalidRequest(f"{text[:40]!r} is not a day; use one such as 2026-11-21", param="day") from error
