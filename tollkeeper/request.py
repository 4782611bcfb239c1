"""`tollkeeper request`: finds requests, and shows one in detail."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import typer

from analytics.explorer.cost_lines import CostLines, cost_lines
from analytics.explorer.found import FoundPage, count_matches, find_requests
from analytics.explorer.question import PAGE_ROWS, SORTS, RequestQuestion, read_outcome, read_sort
from analytics.explorer.rendering import request_as_json
from analytics.explorer.search import read_search
from analytics.explorer.single_request import SingleRequest, single_request
from analytics.explorer.slowest import SlowTokens, slowest_tokens
from analytics.explorer.waterfall import waterfall
from analytics.scope import Period
from backends.control.prices import load_cards
from contracts.errors import InvalidRequest, LostInCrash
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(
    help="Find requests, and show a request's time by stage and its cost by usage kind.", no_args_is_help=True
)

RequestId = Annotated[str, typer.Argument(metavar="ID", help="The request's id, as in the response's x-request-id.")]


@app.command("show")
def show(request: RequestId, data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False) -> None:
    """Show a request: time by stage, cost by usage kind, and why its slowest tokens were slow."""
    with one_line_errors():
        identifier = _identifier(request)
        with open_installation(data, store_url, os.environ) as opened:
            found = single_request(opened.store, identifier)
            slow = slowest_tokens(opened.store, found)
            with opened.database.session() as session:
                costs = cost_lines(found, load_cards(session, found.labels["model"]))
    if as_json:
        print_json(request_as_json(found, costs, slow))
    else:
        _print(found, costs, slow)


@app.command("find")
def find(
    search: Annotated[
        str, typer.Argument(help="Search terms, such as 'user:alice error:rate_limit_exceeded ttft>500ms'.")
    ] = "",
    hours: Annotated[float, typer.Option(min=0.01, max=9_480, help="Look-back window in hours.")] = 1,
    tenant: Annotated[str, typer.Option(help="Only this tenant (default: all).")] = "",
    team: Annotated[str, typer.Option(help="Only this team (default: all).")] = "",
    model: Annotated[str, typer.Option(help="Only this model (default: all).")] = "",
    outcome: Annotated[str, typer.Option(help="Only this outcome: ok, error, cancelled or rejected.")] = "",
    sort: Annotated[str, typer.Option(help=f"Order: {', '.join(SORTS)}.")] = "newest",
    page: Annotated[int, typer.Option(help=f"Page to show, of {PAGE_ROWS} requests each.")] = 1,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Find requests. All search terms must match; docs/requests.md lists them."""
    with one_line_errors():
        now = datetime.now(UTC)
        question = RequestQuestion(
            Period(now - timedelta(hours=hours), now),
            tenant=tenant or None,
            team=team or None,
            model=model or None,
            outcome=read_outcome(outcome),
            search=read_search(search),
            sort=read_sort(sort),
            page=page,
        )
        with open_installation(data, store_url, os.environ) as opened:
            answer = find_requests(opened.store, question)
            total = count_matches(opened.store, question, answer.searched).total
    if as_json:
        print_json(_found_as_json(answer, total))
        return
    columns = ("request_id", "started_at", "tenant", "model", "outcome", "duration_ms", "cost_usd")
    rows = [{**one.as_json(), "duration_ms": f"{one.duration_ns / 1e6:.1f}"} for one in answer.requests]
    print_table(columns, rows, _cell, "no request matches")
    typer.echo(f"{total} match")


def _found_as_json(answer: FoundPage, total: int) -> dict[str, object]:
    return {
        "total": total,
        "page": answer.question.page,
        "has_more": answer.has_more,
        "requests": [one.as_json() for one in answer.requests],
    }


def _identifier(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is not a request id; it is in the response header x-request-id") from error


def _print(request: SingleRequest, costs: CostLines, slow: SlowTokens) -> None:
    labels = request.labels
    cost = "unpriced" if costs.total_usd is None else f"{costs.total_usd:f} USD"
    code = f" {labels['error_code']}" if labels["error_code"] else ""
    typer.echo(f"{request.request_id}  {request.started_at.isoformat()}  {labels['outcome']} {request.status}{code}")
    if labels["error_code"] == LostInCrash.code:
        typer.echo("the gateway process died during this request: usage, cost and end time are estimates")
    typer.echo(f"tenant {request.tenant}, model {labels['model'] or labels['requested_model']}, {cost}")
    for verdict in request.verdicts:
        typer.echo(f"guardrail {verdict}")
    fall = waterfall(request)
    spans = [{"stage": span.stage, "ms": f"{span.length_ns / 1e6:.2f}"} for span in fall.spans]
    print_table(("stage", "ms"), spans, _cell, "no times were measured")
    lines = [
        {
            "kind": line.leaf,
            "tokens": "" if line.tokens is None else line.tokens,
            "USD": "no price" if line.cost_usd is None else format(line.cost_usd, "f"),
        }
        for line in costs.lines
    ]
    print_table(("kind", "tokens", "USD"), lines, _cell, "usage unknown")
    if labels["service_tier"]:
        typer.echo(f"service tier {labels['service_tier']}")
    if costs.missing:
        typer.echo(costs.missing)
    tokens = [{"token": one.token, "ms": f"{one.waited_ns / 1e6:.2f}", "mostly": one.main_cause} for one in slow.tokens]
    print_table(("token", "ms", "mostly"), tokens, _cell, "no tokens were timed")
    if slow.tokens and not slow.has_steps:
        typer.echo("its engine steps have expired or are missing")


def _cell(row: Mapping[str, Any], column: str) -> str:
    return "" if row[column] is None else str(row[column])
