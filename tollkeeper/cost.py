"""`tollkeeper cost`: usage and cost by payer, read from the store."""

import os
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from analytics.cost.periods import GRAINS, PeriodGrain
from analytics.cost.question import DIMENSIONS, CostQuestion
from analytics.cost.rendering import report_as_json
from analytics.cost.report import CostLine, CostReport, cost_report
from analytics.cost.sums import CostSum
from contracts.errors import InvalidRequest
from contracts.pricing.money import usd
from contracts.pricing.unit_prices import UNIT_WORDS
from tollkeeper.commands import LazyCommand, LazyGroup, add_lazily
from tollkeeper.cost_range import UTC_NAME, From, Month, Team, Tenant, TimeZone, To, asked_range
from tollkeeper.open_store import open_store
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(cls=LazyGroup, help="Costs: reports, shared costs, exports, invoices.", no_args_is_help=True)

# Loaded only when called: a report needs neither price cards nor file formats.
LAZY: Final = (
    LazyCommand(
        "reprice",
        "tollkeeper.cost_reprice",
        "reprice_command",
        "Compute what past usage would cost at other prices. Changes nothing.",
    ),
    LazyCommand(
        "allocate",
        "tollkeeper.cost_allocate",
        "allocate_command",
        "Distribute shared costs (idle GPUs, shadow traffic, unallocated, fixed, commitments) by a saved allocation.",
    ),
    LazyCommand(
        "export",
        "tollkeeper.cost_export",
        "export_command",
        "Write costs by day as a FOCUS 1.3 file and check it. Status 1 if a rule is violated.",
    ),
    LazyCommand(
        "check",
        "tollkeeper.cost_export",
        "check_command",
        "Check a FOCUS file against the specification's rules. Status 1 if one is violated.",
    ),
    LazyCommand(
        "invoices",
        "tollkeeper.cost_export",
        "invoices_command",
        "Write a draft invoice for each team (or tenant) that used anything, as HTML and PDF. "
        "`books close` issues them.",
    ),
)
add_lazily(app, LAZY)

_BY_DEFAULT = "tenant,team,project,key,model"
_COLUMNS = ("requests", "input", "cached", "output", "USD")
# Columns for units besides tokens; requests have their own column
_UNITS: Final = tuple(word for word in UNIT_WORDS if word != "request")
_IF_ANY = (
    *(f"{word}s" for word in _UNITS),
    "recorded",
    "corrections",
    "estimated",
    "no price",
    "usage unknown",
    "failed",
    "refused",
)  # columns that are shown only if a value differs from 0


@app.command("report")
def report(
    by: Annotated[
        str, typer.Option(help=f"Levels, outermost first: {', '.join(DIMENSIONS)}, or tag:NAME.")
    ] = _BY_DEFAULT,
    begin: From = "",
    end: To = "",
    month: Month = "",
    tz: TimeZone = UTC_NAME,
    grain: Annotated[
        str, typer.Option(help=f"One line for each {', '.join(GRAINS)} (default: one line for the whole period).")
    ] = "",
    tenant: Tenant = "",
    team: Team = "",
    project: Annotated[str, typer.Option(help="Only this project (default: all).")] = "",
    model: Annotated[str, typer.Option(help="Only this model (default: all).")] = "",
    attempts: Annotated[
        bool, typer.Option("--attempts/--no-attempts", help="Also show the cost of failed attempts and hedges.")
    ] = True,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Report requests, tokens and cost at every level.

    Estimated is the part of the cost whose tokens are estimates. Requests without a price or with unknown usage are
    counted separately, and so are failed and refused ones, which are free. A dash is a request without a name at that
    level.
    """
    now = datetime.now(UTC)
    with one_line_errors():
        period, zone = asked_range(begin, end, month, tz, now)
        question = CostQuestion(
            period.start,
            period.end,
            tuple(level for level in by.split(",") if level),
            _grain(grain),
            zone,
            tenant or None,
            team or None,
            project or None,
            model or None,
            asked_at=now,
        )
        with open_store(data, store_url, os.environ) as (store, _):
            answer = cost_report(store, question, with_attempts=attempts)
    if as_json:
        print_json(report_as_json(answer))
    else:
        _print(answer)


def _grain(text: str) -> PeriodGrain | None:
    if text and text not in GRAINS:
        raise InvalidRequest(f"{text!r} is not a value of --grain; use one of {', '.join(GRAINS)}", param="grain")
    return text or None


def _empty(question: CostQuestion) -> str:
    """Return the line for a report without requests: it repeats the names asked for, which may be mistyped."""
    asked = [(level, getattr(question, level)) for level in ("tenant", "team", "project", "model")]
    wanted = ", ".join(f"{level} {name!r}" for level, name in asked if name)
    return f"no requests of {wanted} in this time" if wanted else "no requests in this time"


def _print(report: CostReport) -> None:
    levels = report.question.by
    rows = [_row(line, report) for line in report.lines]
    said = (name for name in _IF_ANY if any(row[name] for row in rows))
    columns = (*(("from",) if report.question.grain else ()), *levels, *_COLUMNS, *said)
    print_table(columns, rows, lambda row, column: str(row[column]), _empty(report.question))
    total = report.total
    spent = "unknown" if total.cost_usd is None else f"{total.cost_usd:f}"
    typer.echo(
        f"total: {total.requests} requests, {total.input_tokens} tokens in, {total.output_tokens} out, {spent} USD"
    )
    if total.units_used:
        used = ", ".join(f"{count:f} {word}{'' if count == 1 else 's'}" for word, count in total.units_used.items())
        typer.echo(f"by unit: {used}")
    if total.corrected_pico_usd:
        typer.echo(
            f"corrections: {usd(total.recorded_pico_usd):f} USD as recorded, {usd(total.corrected_pico_usd):f} USD "
            "booked since (tollkeeper books adjustments)"
        )
    if total.estimated_requests:
        typer.echo(
            f"of which estimated: {usd(total.estimated_pico_usd):f} USD of {_requests(total.estimated_requests)} whose "
            "tokens were counted by estimate"
        )
    if total.unpriced_requests or total.partly_unpriced_requests:
        tokens = "an unknown number of" if total.unpriced_tokens is None else f"{total.unpriced_tokens}"
        partly = f", {_requests(total.partly_unpriced_requests)} in part" if total.partly_unpriced_requests else ""
        typer.echo(
            f"no price: {_requests(total.unpriced_requests)}{partly}; {tokens} tokens are not in the cost; give their "
            "models a price card with every kind of token (tollkeeper prices import), then bill them: tollkeeper books "
            "rerate"
        )
    if total.unknown_usage_requests:
        typer.echo(
            f"usage unknown: {_requests(total.unknown_usage_requests)}, not in the cost: the target did not report "
            "what it used"
        )
    if total.failed_requests:
        typer.echo(f"failed: {_requests(total.failed_requests)}, which cost nothing")
    if total.rejected:
        typer.echo(
            f"refused: {_requests(total.rejected)} (limits, budgets, guardrails, access); no model was called, so they "
            "cost nothing and name no model"
        )
    if total.further_attempts:
        spent = f"{usd(total.further_pico_usd):f} USD"
        unknown = f", {total.further_unpriced} of unknown cost" if total.further_unpriced else ""
        typer.echo(
            f"additional attempts (retries, hedges, fallbacks): {total.further_attempts}, {spent} that no tenant is "
            f"billed for{unknown}"
        )


def _row(line: CostLine, report: CostReport) -> dict[str, object]:
    local = line.period.start.astimezone(report.question.zone)
    labels = {level: label or "-" for level, label in zip(report.question.by, line.path, strict=True)}
    return {"from": f"{local:%Y-%m-%d %H:%M}", **labels, **_figures(line.sums)}


def _figures(sums: CostSum) -> dict[str, object]:
    used = sums.units_used
    return {
        "requests": sums.requests,
        "input": sums.input_tokens,
        "cached": sums.cached_input_tokens,
        "output": sums.output_tokens,
        **{f"{word}s": f"{used[word]:f}" if word in used else "" for word in _UNITS},
        "USD": "unknown" if sums.cost_usd is None else f"{sums.cost_usd:.6f}",
        "recorded": f"{usd(sums.recorded_pico_usd):.6f}" if sums.corrected_pico_usd else "",
        "corrections": f"{usd(sums.corrected_pico_usd):.6f}" if sums.corrected_pico_usd else "",
        "estimated": f"{usd(sums.estimated_pico_usd):.6f}" if sums.estimated_requests else "",
        "no price": sums.unpriced_requests + sums.partly_unpriced_requests or "",
        "usage unknown": sums.unknown_usage_requests or "",
        "failed": sums.failed_requests or "",
        "refused": sums.rejected or "",
    }


def _requests(count: int) -> str:
    return f"{count} request" if count == 1 else f"{count} requests"
