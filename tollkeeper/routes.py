"""`tollkeeper routes`: routes via the control plane's API, and explanations of where they send requests."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError
from gateway.config.file import FileSource
from gateway.routing.routes.explanation import Explanation, RequestFields, explain
from tollkeeper.control_client import ControlClient
from tollkeeper.gateway_client import metrics_token, route_states
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, GatewayUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.replay.command import find_gateway
from tollkeeper.resources.apps import examples_of, group_of
from tollkeeper.resources.serving import LEARNING
from tollkeeper.resources.table import BY_NAME
from tollkeeper.resources.words import leads_to
from tollkeeper.routes_drill import drill_command
from tollkeeper.routes_eval import eval_command

app = group_of("routes", without=("show",))
app.command("eval")(eval_command)
app.command("drill")(drill_command)

RouteId = Annotated[str, typer.Argument(metavar="ROUTE", help="The route's name.")]
_BY_MODEL: Final = "MODEL=NUMBER"
_PATH = "/v1/routes"
_STATES: Final[Mapping[str, str]] = {
    "ready": "The gateway reads prompts for this route.",
    "loading": LEARNING,
    "unavailable": "The gateway's embedder is not running, so the default answers; GET /ready says why.",
    "unknown": "The gateway does not answer, or does not serve the route; check --gateway-url and `tollkeeper doctor`.",
}


@app.command("show", epilog=examples_of(BY_NAME["routes"], "show"))
def show(
    route: RouteId,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    gateway_url: GatewayUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show a route's rules; for a semantic route also whether the gateway has learned its example prompts."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        stored = next((known for known in client.get_all(_PATH) if known["id"] == route), None)
        if stored is None:
            raise ConfigurationError(f"there is no route {route!r}; tollkeeper routes list shows those there are")
    state = (
        _semantic_state(stored, find_gateway(data, gateway_url), metrics_token(data))
        if stored["rules"].get("semantic")
        else None
    )
    if as_json:
        print_json({**stored, "semantic_state": state})
        return
    typer.echo(f"route {stored['id']} ({'active' if stored['is_active'] else 'inactive'}): {leads_to(stored)}")
    if state is not None:
        typer.echo(f"semantic: {state}. {_STATES[state]}")
    typer.echo(yaml.safe_dump(stored["rules"], sort_keys=False, allow_unicode=True).rstrip())


@app.command("explain")
def explain_route(
    route: RouteId,
    tenant: Annotated[str, typer.Option(help="The caller's tenant.")] = "",
    tag: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A tag of the request; repeat for more.")
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=0, help="Prompt length in tokens.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum answer length in tokens.")] = None,
    latency_budget_ms: Annotated[int | None, typer.Option(min=1, help="The request's latency budget, in ms.")] = None,
    region: Annotated[str, typer.Option(help="The gateway's region.")] = "",
    at: Annotated[
        str, typer.Option(help="Time of the request, such as 2027-01-31T22:30:00+01:00 (default: now).")
    ] = "",
    conversation: Annotated[str, typer.Option(help="The conversation's id.")] = "",
    intent: Annotated[str, typer.Option(help="Intent that the prompt is classified as.")] = "",
    complexity: Annotated[str, typer.Option(help="Complexity of the prompt: simple or complex.")] = "",
    budget_left: Annotated[
        list[str] | None,
        typer.Option(metavar=_BY_MODEL, help="Share of its budgets that is left for a model, 0 to 1; repeat for more."),
    ] = None,
    cost_usd: Annotated[
        list[str] | None,
        typer.Option(metavar=_BY_MODEL, help="Cost of the request at a model, in USD; repeat for more."),
    ] = None,
    ttft_seconds: Annotated[
        list[str] | None,
        typer.Option(metavar=_BY_MODEL, help="A model's recent time to first token, in seconds; repeat for more."),
    ] = None,
    answer_seconds: Annotated[
        list[str] | None,
        typer.Option(metavar=_BY_MODEL, help="A model's predicted answer time, in seconds; repeat for more."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A gateway's YAML file to use instead of the control plane.")
    ] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Explain where a route would send a request, and why not elsewhere. No model is called."""
    with one_line_errors():
        asked = _request(
            {
                "tenant": tenant,
                "tags": _pairs("--tag", tag),
                "prompt_tokens": prompt_tokens,
                "max_tokens": max_tokens,
                "latency_budget_ms": latency_budget_ms,
                "region": region,
                "at": at or None,
                "conversation": conversation,
                "intent": intent or None,
                "complexity": complexity or None,
                "budget_left": _pairs("--budget-left", budget_left),
                "cost_usd": _pairs("--cost-usd", cost_usd),
                "ttft_seconds": _pairs("--ttft-seconds", ttft_seconds),
                "answer_seconds": _pairs("--answer-seconds", answer_seconds),
            }
        )
        if config is not None:
            found = _explain_file(config, route, asked)
        else:
            with ControlClient.of_installation(data, control_url) as client:
                body = asked.model_dump(mode="json", exclude_defaults=True)
                found = Explanation.model_validate(client.post(f"{_PATH}/{path_segment(route)}/explain", body))
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print(found)


def _semantic_state(stored: Mapping[str, Any], gateway: str, token: str) -> str:
    states = asyncio.run(route_states(gateway, token)) or {}
    state = states.get(str(stored["id"]), "unknown")
    return state if state in _STATES else "unknown"


def _explain_file(config: Path, name: str, asked: RequestFields) -> Explanation:
    serving = FileSource(config, b"").serving()
    route = serving.routes.get(name)
    if route is None:
        known = ", ".join(sorted(serving.routes)) or "none"
        raise ConfigurationError(f"{config} has no route {name!r}; it has: {known}")
    return explain(route, serving, asked)


def _request(said: Mapping[str, object]) -> RequestFields:
    try:
        return RequestFields.model_validate({name: value for name, value in said.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise ConfigurationError(f"{option}: {first['msg']}") from error


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    given = given or []
    pairs = [text.partition("=") for text in given]
    wrong = next((text for text, (name, mark, _) in zip(given, pairs, strict=True) if not name or not mark), None)
    if wrong is not None:
        raise ConfigurationError(f"{option} is written NAME=VALUE, not {wrong!r}")
    return {name: value for name, _, value in pairs}


def _print(found: Explanation) -> None:
    console = Console()
    if found.order:
        first, *others = found.order
        console.print(Text(f"{found.route} leads to {first.model} at {', '.join(first.targets)}", style="bold"))
        for leg in others:
            console.print(Text(f"then to {leg.model} at {', '.join(leg.targets)}" + _late(leg.may_be_late)))
        pinned = sorted({region for leg in found.order for region in leg.regions or ()})
        if pinned:
            console.print(Text(f"within the regions {', '.join(pinned)}"))
    else:
        console.print(Text(f"{found.route} refuses the request", style="bold red"))
    rows = [entry.model_dump() for entry in found.entries]
    print_table(("route", "entry", "among", "share", "state", "why"), rows, _explained_cell, "no entries")


def _late(is_late: bool) -> str:
    return ", which may be too late" if is_late else ""


def _explained_cell(entry: Mapping[str, Any], column: str) -> str:
    if column == "share":
        return "" if entry["share"] is None else f"{entry['share']:.1%}"
    return str(entry[column])
