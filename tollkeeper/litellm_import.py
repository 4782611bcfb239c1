"""`tollkeeper import litellm`: converts a LiteLLM proxy's configuration to objects of this installation."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from backends.yaml_document import YamlDocument
from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.plain_help import examples_text
from tollkeeper.printing import one_line_errors, print_json

app = typer.Typer(help="Import the configuration of another gateway.", no_args_is_help=True)

_EXAMPLES: Final = [
    "tollkeeper import litellm config.yaml --tenant acme --dry-run",
    "tollkeeper import litellm config.yaml --keys keys.json --tenant acme",
]
_MTOK: Final = Decimal(1_000_000)
_PRICES: Final[Mapping[str, str]] = {
    "input_cost_per_token": "input_text",
    "output_cost_per_token": "output_text",
    "cache_read_input_token_cost": "cache_read_text",
    "cache_creation_input_token_cost": "cache_write_5m",
}
_PERIODS: Final[Mapping[str, str]] = {"1d": "day", "24h": "day", "7d": "week", "30d": "month", "1mo": "month"}
_STRATEGIES: Final[Mapping[str, str]] = {
    "simple-shuffle": "random",
    "least-busy": "least_outstanding",
    "latency-based-routing": "peak_ewma",
    "usage-based-routing": "cost",
    "usage-based-routing-v2": "cost",
    "cost-based-routing": "cost",
}
_CREDENTIALS: Final = ("api_key", "aws_access_key_id", "vertex_credentials", "azure_ad_token")
_KNOWN_PARAMS: Final = frozenset(
    {"model", "api_key", "api_base", "base_url", "api_version", "rpm", "tpm", "weight", "region_name", *_PRICES}
)
_SLUG: Final = 63
_KEY_LIMITS: Final = {
    "tpm_limit": {"metric": "tokens", "window": "minute"},
    "rpm_limit": {"metric": "requests", "window": "minute"},
    "max_parallel_requests": {"metric": "concurrency"},
}


@dataclass(slots=True)
class Translation:
    """The objects that a configuration is converted to, and the parts that cannot be converted."""

    objects: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, section: str, entry: dict[str, Any]) -> None:
        """Add an object to a section."""
        self.objects.append((section, entry))


@app.callback()
def group() -> None:
    """Keep `litellm` as a subcommand, although it is the only one."""


@app.command("litellm", epilog=examples_text(_EXAMPLES))
def litellm_command(
    file: Annotated[Path, typer.Argument(metavar="CONFIG", help="LiteLLM's config.yaml.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant that gets the teams, keys and budgets.")] = "default",
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", help="JSON file with the answers of LiteLLM's /key/list?return_full_object=true and /team/list."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be created, and create nothing.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write YAML for `tollkeeper apply` to this file instead.")
    ] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Import models, prices, teams, budgets and keys of a LiteLLM proxy. Keys get new secrets, printed once.

    What cannot be imported is listed on stderr.
    """
    with one_line_errors():
        listed = [] if keys is None else _read_keys(keys)
        made = translate(YamlDocument.read(file), tenant, listed)
        if output is not None:
            output.write_text(_as_yaml(made))
            plan: dict[str, Any] = {"applied": False, "steps": [], "issued": []}
        else:
            objects = [{"section": section, "entry": entry} for section, entry in made.objects]
            with ControlClient.of_installation(data, control_url) as client:
                plan = client.post("/v1/configuration", {"objects": objects, "dry_run": dry_run})
    if as_json:
        print_json({**plan, "left_out": made.left_out})
        return
    for step in plan["steps"]:
        typer.echo(f"{step['action']} {step['noun']} {step['name']}")
    if output is not None:
        typer.echo(f"{len(made.objects)} objects written; next: tollkeeper apply -f {output}")
    for issued in plan["issued"]:
        typer.echo(f"{issued['secret']}  {issued['name']} of tenant {issued['tenant']} ({issued['id']})")
    for line in made.left_out:
        typer.echo(f"not imported: {line}", err=True)


def translate(document: YamlDocument, tenant: str, keys: Sequence[Mapping[str, Any]]) -> Translation:
    """Convert a LiteLLM configuration. Raises ConfigurationError if it is not one."""
    content = document.content
    if not isinstance(content, dict) or not isinstance(content.get("model_list"), list):
        raise ConfigurationError(f"{document.source} has no model_list: it is not a configuration of a LiteLLM proxy")
    made = Translation()
    router, settings = (_section(document, name) for name in ("router_settings", "litellm_settings"))
    _models(document, content["model_list"], str(router.get("routing_strategy", "")), made)
    _fallbacks(router, settings, made)
    if keys or settings.get("max_budget"):
        made.add("tenants", {"id": _slug(tenant)})
    if settings.get("max_budget"):
        _budget(made, tenant, "tenant", "", settings["max_budget"], settings.get("budget_duration"))
    _teams_and_keys(keys, tenant, made)
    _list_left_out(content, made)
    return made


def _section(document: YamlDocument, name: str) -> Mapping[str, Any]:
    found = document.content.get(name) or {}
    if not isinstance(found, dict):
        raise document.error((name,), "must be fields with values")
    return found


def _models(document: YamlDocument, listed: Sequence[Any], strategy: str, made: Translation) -> None:
    targets: dict[str, list[dict[str, Any]]] = {}
    prices: dict[str, dict[str, str]] = {}
    for number, each in enumerate(listed):
        params = each.get("litellm_params") if isinstance(each, dict) else None
        if not isinstance(params, dict) or not each.get("model_name") or not params.get("model"):
            raise document.error(("model_list", number), "needs model_name and litellm_params.model")
        name = str(each["model_name"])
        if "*" in name:
            made.left_out.append(f"model_list.{number}: wildcard {name!r}; list the models one by one")
            continue
        found = targets.setdefault(name, [])
        info = each["model_info"] if isinstance(each.get("model_info"), dict) else {}
        stated = {key: params.get(key, info.get(key)) for key in _PRICES}
        try:
            found.append(_target(number, params, f"{_slug(name)}-{len(found) + 1}"[-_SLUG:], made))
            known = {_PRICES[key]: _per_million(key, value) for key, value in stated.items() if value is not None}
        except ConfigurationError as error:
            raise document.error(("model_list", number), error.message) from error
        if known and prices.setdefault(name, known) != known:
            made.left_out.append(f"model_list.{number}: another price of {name!r} than its first deployment has")
        _leave_out(params, number, made)
    policy = {"policy": _STRATEGIES[strategy]} if strategy in _STRATEGIES else {}
    for name, found in targets.items():
        made.add("pools", {"name": _slug(name), **policy, "targets": found})
        made.add("models", {"name": name, "pool": _slug(name)})
        _add_price(name, prices, made)


def _add_price(name: str, prices: Mapping[str, dict[str, str]], made: Translation) -> None:
    if name in prices:
        made.add("prices", {"model": name, "version": f"{name}/litellm", "usd_per_mtok": prices[name]})
    else:
        made.left_out.append(
            f"price of {name!r}: LiteLLM takes it from its own table; run `tollkeeper prices import`, "
            f"or `tollkeeper prices create`"
        )


def _leave_out(params: Mapping[str, Any], number: int, made: Translation) -> None:
    """Report the parameters of a deployment that are not converted."""
    for key in sorted(set(params) - _KNOWN_PARAMS - set(_CREDENTIALS)):
        made.left_out.append(f"model_list.{number}.litellm_params.{key}")
    for key in ("rpm", "tpm"):
        if params.get(key):
            made.left_out.append(f"model_list.{number}.litellm_params.{key}: use a limit or the pool's queue")


def _target(number: int, params: Mapping[str, Any], name: str, made: Translation) -> dict[str, Any]:
    model = str(params["model"])
    provider, _, upstream = model.partition("/")
    base = params.get("api_base") or params.get("base_url")
    target: dict[str, Any] = {"name": name}
    if base and provider in ("openai", "hosted_vllm", "text-completion-openai") and upstream:
        target |= {"kind": "openai_http", "url": _reference_free(str(base), number, made), "model": upstream}
    else:
        target |= {"kind": "litellm", "model": model if upstream else f"openai/{model}"}
        target |= {"url": str(base)} if base else {}
        target["provider"] = provider if upstream else "openai"
        if params.get("api_version"):
            made.left_out.append(f"model_list.{number}.litellm_params.api_version: set it in the target's settings")
    key = params.get("api_key")
    if isinstance(key, str) and key.startswith("os.environ/"):
        target["key"] = f"env:{key.removeprefix('os.environ/')}"
    elif key and str(key).lower() not in ("none", "fake", "fake-key", "dummy"):
        made.left_out.append(
            f"model_list.{number}.litellm_params.api_key: a key in the file; store it with `tollkeeper secrets put` "
            f"and set it with `tollkeeper targets set {name} --key-ref stored:NAME`"
        )
    for credential in _CREDENTIALS[1:]:
        if params.get(credential):
            made.left_out.append(f"model_list.{number}.litellm_params.{credential}: see docs/providers.md")
    weight = params.get("weight")
    return target | ({"weight": _whole("weight", weight)} if weight else {})


def _reference_free(base: str, number: int, made: Translation) -> str:
    if not base.startswith("os.environ/"):
        return base
    name = base.removeprefix("os.environ/")
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(f"api_base is {base}, and the environment has no {name}")
    return value


def _fallbacks(router: Mapping[str, Any], settings: Mapping[str, Any], made: Translation) -> None:
    listed = router.get("fallbacks") or settings.get("fallbacks") or []
    names = {entry["name"] for section, entry in made.objects if section == "models"}
    for one in listed:
        for model, others in (one if isinstance(one, dict) else {}).items():
            known = [other for other in others if other in names]
            if model not in names or not known:
                made.left_out.append(f"fallbacks of {model!r}: a model in it is not listed")
                continue
            # A route may not have a model's name, so the model is renamed.
            _rename_model(made, model, f"{model}-only")
            ways = [{"model": f"{model}-only"}]
            made.add("routes", {"name": model, "choose": ways, "fallbacks": [{"model": other} for other in known]})


def _rename_model(made: Translation, old: str, new: str) -> None:
    for section, entry in made.objects:
        if section == "models" and entry["name"] == old:
            entry["name"] = new
        elif section == "prices" and entry["model"] == old:
            entry |= {"model": new, "version": f"{new}/litellm"}
        elif section == "routes":
            for way in (*entry["choose"], *entry.get("fallbacks", [])):
                if way.get("model") == old:
                    way.pop("model")
                    way["route"] = old


def _teams_and_keys(listed: Sequence[Mapping[str, Any]], tenant: str, made: Translation) -> None:
    teams: dict[str, str] = {}
    for one in listed:
        identity = one.get("team_id")
        if identity and "token" not in one and identity not in teams:
            team = teams[str(identity)] = _slug(str(one.get("team_alias") or identity))
            made.add("teams", {"tenant": _slug(tenant), "id": team, "name": str(one.get("team_alias") or identity)})
            if one.get("max_budget"):
                _budget(made, tenant, "team", team, one["max_budget"], one.get("budget_duration"))
    names: dict[str, int] = {}
    for one in listed:
        if "token" in one or "key_name" in one:
            name = str(one.get("key_alias") or one.get("key_name") or "imported key")
            names[name] = names.get(name, 0) + 1
            _key(one, name if names[name] == 1 else f"{name} {names[name]}", tenant, teams, made)


def _key(one: Mapping[str, Any], name: str, tenant: str, teams: dict[str, str], made: Translation) -> None:
    """Convert a key with its budget and limits, and its team if no other entry defines it."""
    payer = _slug(tenant)
    key: dict[str, Any] = {"tenant": payer, "name": name, "id": f"litellm-{_slug(name)}"[:40].strip("-")}
    team_id = str(one.get("team_id") or "")
    if team_id:
        if team_id not in teams:
            teams[team_id] = _slug(team_id)
            made.add("teams", {"tenant": payer, "id": teams[team_id]})
        key["team"] = teams[team_id]
    models = [model for model in one.get("models") or [] if model != "all-team-models"]
    if models:
        key["models"] = models
    if one.get("expires"):
        key["expires_at"] = str(one["expires"])
    made.add("keys", key)
    if one.get("max_budget"):
        _budget(made, tenant, "key", key["id"], one["max_budget"], one.get("budget_duration"))
    for stated, measured in _KEY_LIMITS.items():
        if one.get(stated):
            limit = {"tenant": payer, "level": "key", "subject": key["id"], **measured}
            made.add("limits", {**limit, "amount": _whole(f"{stated} of key {name!r}", one[stated])})
    made.left_out.append(f"secret of key {name!r}: LiteLLM stores only its hash; distribute the new one")


def _budget(made: Translation, tenant: str, level: str, subject: str, amount: Any, duration: Any) -> None:
    period = _PERIODS.get(str(duration), "month" if duration else "total")
    if duration and str(duration) not in _PERIODS:
        made.left_out.append(f"budget duration {duration!r} of {level} {subject or tenant!r}: made monthly")
    entry: dict[str, Any] = {"tenant": _slug(tenant), "level": level, "period": period, "amount_usd": str(amount)}
    made.add("budgets", entry | ({"subject": subject} if subject else {}))


def _list_left_out(content: Mapping[str, Any], made: Translation) -> None:
    carried = {
        "litellm_settings": {"max_budget", "budget_duration", "fallbacks"},
        "router_settings": {"routing_strategy", "fallbacks"},
    }
    for section, value in content.items():
        if section == "model_list":
            continue
        names = list(value) if isinstance(value, dict) else [""]
        for name in names:
            if name not in carried.get(section, set()):
                made.left_out.append(f"{section}.{name}".rstrip("."))


def _read_keys(file: Path) -> list[Mapping[str, Any]]:
    content = YamlDocument.read(file).content  # JSON is YAML
    found: list[Mapping[str, Any]] = []
    for part in content.values() if isinstance(content, dict) else [content]:
        if isinstance(part, list):
            found.extend(each for each in part if isinstance(each, dict))
    if not found:
        raise ConfigurationError(f"{file} holds no list of keys or teams")
    return found


def _per_million(name: str, value: object) -> str:
    try:
        amount = Decimal(str(value)) * _MTOK
    except InvalidOperation as error:
        raise ConfigurationError(f"{name} is {value!r}; write USD per token, such as 0.00000015") from error
    return format(amount.normalize() if amount else Decimal(0), "f")


def _whole(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError as error:
        raise ConfigurationError(f"{name} is {value!r}; write a whole number") from error


def _as_yaml(made: Translation) -> str:
    sections: dict[str, list[dict[str, Any]]] = {}
    for section, entry in made.objects:
        sections.setdefault(section, []).append(entry)
    lines = "".join(f"# not imported: {line}\n" for line in made.left_out)
    return lines + yaml.safe_dump(sections, sort_keys=False, allow_unicode=True, width=100)


def _slug(name: str) -> str:
    slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")
    return slug[:_SLUG].strip("-") or "imported"
