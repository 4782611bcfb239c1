"""`tollkeeper upstream add`: adds a server or provider with pool, target, model and price in one step."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError, TollkeeperError
from contracts.metering.usage import TOKEN_LEAVES
from contracts.suggestions import did_you_mean
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.plain_help import examples_text
from tollkeeper.printing import one_line_errors, print_json

app = typer.Typer(
    help="Servers and providers that answer requests: added with a model and its price.", no_args_is_help=True
)

_EXAMPLES: Final = [
    "tollkeeper upstream add llama --url http://10.0.0.5:8000/v1 --price 0.20 0.60",
    "tollkeeper upstream add gpt-4o-mini --url https://api.openai.com/v1 --api-key-env OPENAI_API_KEY",
    "tollkeeper upstream add claude-sonnet-4-5 --url https://api.anthropic.com/v1 --api-key-env ANTHROPIC_API_KEY",
    "tollkeeper upstream add claude --provider anthropic --model claude-sonnet-4-5 --api-key-env ANTHROPIC_API_KEY",
]
# Providers by the host of their OpenAI-compatible API.
PROVIDER_HOSTS: Final[Mapping[str, str]] = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.mistral.ai": "mistral",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "api.together.xyz": "together",
    "api.fireworks.ai": "fireworks",
    "openrouter.ai": "openrouter",
    "api.x.ai": "x-ai",
    "api.cohere.com": "cohere",
    "generativelanguage.googleapis.com": "google",
}
# APIs of these hosts besides chat completions.
_APIS: Final[Mapping[str, list[str]]] = {
    "api.openai.com": ["chat", "responses"],
    "api.anthropic.com": ["chat", "messages"],
}
_MAX_SLUG: Final = 63


@dataclass(frozen=True, slots=True)
class UpstreamPrice:
    """Prices in USD per million tokens by kind, and their source."""

    usd_per_mtok: dict[str, str]
    source: str
    more: dict[str, Any] = field(default_factory=dict)  # tiers


@app.callback()
def group() -> None:
    """Keep `add` as a subcommand, although it is the only one."""


@app.command("add", epilog=examples_text(_EXAMPLES))
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name that applications ask for.")],
    url: Annotated[str, typer.Option("--url", help="Base URL of an OpenAI-compatible API, with /v1.")] = "",
    provider: Annotated[
        str, typer.Option("--provider", help="Provider, such as openai; without --url it is called through LiteLLM.")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="Model name at the upstream (default: NAME).")] = "",
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Variable that holds its API key; the key is stored encrypted.")
    ] = "",
    key_ref: Annotated[
        str, typer.Option("--key-ref", help="Reference to its key instead: env:NAME, file:/PATH or stored:NAME.")
    ] = "",
    price: Annotated[
        tuple[str, str] | None,
        typer.Option("--price", metavar="INPUT OUTPUT", help="USD per million input and output tokens; 0 0 is free."),
    ] = None,
    price_from_catalogue: Annotated[
        bool,
        typer.Option(
            "--price-from-catalogue",
            help="Take the price from the built-in price list; fail if it has none, instead of asking.",
        ),
    ] = False,
    apis: Annotated[
        str,
        typer.Option(
            "--apis",
            help="Comma-separated APIs that the server speaks itself: chat, messages, responses, gemini "
            "(default: guessed from the host name, else chat). Their requests pass through unchanged.",
        ),
    ] = "",
    pool: Annotated[str, typer.Option("--pool", help="Pool to add it to (default: a new one named after NAME).")] = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Add an upstream: its pool, target, model and price, all or nothing.

    Without --price the built-in price list is searched; on a terminal you are asked if it has none.
    """
    with one_line_errors():
        provider = provider or PROVIDER_HOSTS.get(urlsplit(url).hostname or "", "")
        if not url and not provider:
            raise ConfigurationError("give --url of an OpenAI-compatible server, or --provider")
        upstream_model = model or name
        found = price_of(provider, upstream_model, price, price_from_catalogue)
        with ControlClient.of_installation(data, control_url) as client:
            reference = _key(client, name, api_key_env, key_ref)
            plan = _apply(
                client,
                name,
                pool or slug_of(name),
                target_of(name, url, provider, upstream_model, reference, apis),
                found,
            )
    if as_json:
        print_json(plan)
        return
    done = ", ".join(f"{step['noun']} {step['name']}" for step in plan["steps"])
    typer.echo(f"{name}: {done or 'nothing to change'}")
    if plan["steps"]:
        prices = (
            f"input {found.usd_per_mtok.get('input_text', '-')}, output {found.usd_per_mtok.get('output_text', '-')}"
        )
        typer.echo(f"price in USD per 1M tokens: {prices} ({found.source})")
    if provider and not url:
        typer.echo("Hosted providers need LiteLLM: `tollkeeper doctor` says whether it is installed.")


def target_of(name: str, url: str, provider: str, model: str, key: str, apis: str) -> dict[str, Any]:
    """Return the configuration entry of an upstream's target. Raises ConfigurationError for --apis without a URL."""
    if apis and not url:
        raise ConfigurationError("--apis needs --url; LiteLLM has its own API")
    spoken = [one.strip() for one in apis.split(",") if one.strip()] or _APIS.get(urlsplit(url).hostname or "", [])
    entry: dict[str, Any] = {"name": slug_of(name), "kind": "openai_http" if url else "litellm"}
    entry |= {"url": url} if url else {}
    entry["model"] = model if url or "/" in model else f"{provider}/{model}"
    entry |= {"provider": provider} if provider else {}
    entry |= {"settings": {"apis": spoken}} if spoken else {}
    return entry | ({"key": key} if key else {})


def _key(client: ControlClient, name: str, api_key_env: str, key_ref: str) -> str:
    if api_key_env and key_ref:
        raise ConfigurationError("--api-key-env and --key-ref contradict each other; give one")
    if not api_key_env:
        return key_ref
    value = os.environ.get(api_key_env, "").strip()
    if not value:
        raise ConfigurationError(f"the variable {api_key_env} is not set or empty; export it, or name another")
    stored = slug_of(name)
    client.put(f"/v1/stored-keys/{path_segment(stored)}", {"value": value})
    return f"stored:{stored}"


def price_of(provider: str, model: str, price: tuple[str, str] | None, from_catalogue: bool) -> UpstreamPrice:
    """Return the given price, else the built-in list's; if there is none, ask on a terminal.

    Raises ConfigurationError if no price is known.
    """
    if price is not None:
        if from_catalogue:
            raise ConfigurationError("--price and --price-from-catalogue contradict each other; give one")
        return _given(*price)
    try:
        return _listed(provider, model)
    except TollkeeperError as error:
        if from_catalogue:
            raise
        if not sys.stdin.isatty():
            raise ConfigurationError(
                f"the built-in price list has no price of {model!r} ({error.message}); give "
                "--price INPUT OUTPUT in USD per million tokens (0 0: free)"
            ) from error
    typer.echo(f"The built-in price list has no {model!r}. Prices in USD per million tokens:", err=True)
    return _given(typer.prompt("  input", err=True), typer.prompt("  output", err=True))


def _given(given_input: str, given_output: str) -> UpstreamPrice:
    prices = {}
    for kind, text in (("input_text", given_input), ("output_text", given_output)):
        try:
            amount = Decimal(text)
        except InvalidOperation as error:
            raise ConfigurationError(f"--price {text!r} is not a number; write USD per million tokens") from error
        if not amount.is_finite() or amount < 0:
            raise ConfigurationError(f"--price {text!r} must be 0 or more")
        prices[kind] = format(amount, "f")
    # A kind without a price would make the whole request unpriced; so other kinds get the plain tokens' price.
    for leaf in TOKEN_LEAVES:
        prices.setdefault(leaf, prices["output_text" if leaf.startswith("output") else "input_text"])
    return UpstreamPrice(prices, "given")


def _listed(provider: str, model: str) -> UpstreamPrice:
    from analytics.prices.catalogue import (  # imported here: they load slowly
        catalogue_cards,
        catalogue_version,
        provider_names,
    )

    if not provider:
        raise ConfigurationError("no provider is known for this URL; name it with --provider")
    name = model.partition("/")[2] if model.startswith(f"{provider}/") else model
    now = datetime.now(UTC)
    try:
        cards = catalogue_cards(provider, name)
    except TollkeeperError as error:
        if provider not in provider_names():
            error.message += did_you_mean(provider, provider_names())
        raise
    holding = [card for card in cards if card.valid_from <= now and (card.valid_to is None or now < card.valid_to)]
    if not holding:
        raise ConfigurationError(f"the price list has no price of {name!r} that holds now")
    card = holding[-1]
    more: dict[str, Any] = {}
    if card.tiers:
        more["tiers"] = [
            {"above_input_tokens": tier.above_input_tokens, "usd_per_mtok": _per_million(tier.rates)}
            for tier in card.tiers
        ]
    if card.service_tiers:
        more["service_tiers"] = {tier: _per_million(rates) for tier, rates in card.service_tiers.items()}
    return UpstreamPrice(_per_million(card.rates), f"price list {catalogue_version()}", more)


def _per_million(rates: Mapping[Any, int]) -> dict[str, str]:
    return {str(leaf): format(Decimal(rate).scaleb(-6).normalize(), "f") for leaf, rate in rates.items()}


def _apply(client: ControlClient, name: str, pool: str, target: dict[str, Any], found: UpstreamPrice) -> dict[str, Any]:
    """Add the objects in one transaction and return the plan. Existing targets and a valid price remain."""
    sections: Mapping[str, list[dict[str, Any]]] = client.get("/v1/configuration")["sections"]
    entry: dict[str, Any] = next(
        (dict(one) for one in sections.get("pools", []) if one["name"] == pool), {"name": pool}
    )
    others = [one for one in entry.get("targets", []) if one["name"] != target["name"]]
    entry["targets"] = [*others, target]
    objects = [{"section": "pools", "entry": entry}]
    model = next((one for one in sections.get("models", []) if one["name"] == name), {"name": name})
    objects.append({"section": "models", "entry": {**model, "pool": pool}})
    cards = [one for one in sections.get("prices", []) if one["model"] == name and not one.get("tenant")]
    open_cards = [one for one in cards if not one.get("valid_to")]
    if not any(one["usd_per_mtok"] == found.usd_per_mtok for one in open_cards):
        versions = {one["version"] for one in cards}
        number = next(each for each in range(1, len(versions) + 2) if f"{name}/{each}" not in versions)
        card: dict[str, Any] = {
            "model": name,
            "version": f"{name}/{number}",
            "usd_per_mtok": found.usd_per_mtok,
            **found.more,
        }
        same = [one for one in open_cards if not one.get("provider")]
        objects.append({"section": "prices", "entry": card | ({"replaces": same[0]["version"]} if same else {})})
    return client.post("/v1/configuration", {"objects": objects})


def slug_of(name: str) -> str:
    """Convert a name to an id (a-z, 0-9, -). Raises ConfigurationError if it has no letter or digit."""
    slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")
    if not slug:
        raise ConfigurationError(f"{name!r} has no letter or digit to name a pool by; give --pool")
    return slug[:_MAX_SLUG].strip("-")
