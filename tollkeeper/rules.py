"""What the commands for limits and budgets share: options that name a scope, where a rule is found, how it is shown."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import typer

from contracts.errors import ConfigurationError
from contracts.pricing.money import pico_usd
from contracts.rules.limits import LEVELS
from contracts.rules.rule_words import exact_text
from tollkeeper.control_client import ControlClient, path_segment

Kind = Literal["limit", "budget"]

Tenant = Annotated[str, typer.Argument(help="The tenant's id.")]
TenantOfRule = Annotated[str, typer.Option("--tenant", help="The tenant whose it is; looked for where left out.")]
Subject = Annotated[
    str,
    typer.Option(
        help="Whom: a team; TEAM/PROJECT; a key's id; a user; NAME=VALUE for a tag. '*' counts each on its own."
    ),
]
Model = Annotated[str, typer.Option(help="Counts this model alone; all together where left out.")]
WhenAway = Annotated[
    str, typer.Option(help="While the shared counters are away: share (each gateway's part) or refuse.")
]
WhenUnpriced = Annotated[str, typer.Option(help="Where money is counted and a model has no price: refuse or allow.")]

LIMIT_LEVELS: Final = ", ".join(LEVELS)
BUDGET_LEVELS: Final = ", ".join(level for level in LEVELS if level != "conversation")


def path_of(kind: Kind, tenant: str, rule_id: str = "") -> str:
    """Give the path of a tenant's limits or budgets, or of one of them."""
    path = f"/v1/tenants/{path_segment(tenant)}/{kind}s"
    return f"{path}/{path_segment(rule_id)}" if rule_id else path


def find_path(client: ControlClient, kind: Kind, rule_id: str, tenant: str) -> str:
    """Give the path of a limit or budget; without its tenant it is looked for, since a refusal names its id alone.

    Raises ConfigurationError where no tenant has it.
    """
    if tenant:
        return path_of(kind, tenant, rule_id)
    for known in client.get_all("/v1/tenants"):
        rules = client.get_all(path_of(kind, known["id"]))
        if any(rule["id"] == rule_id for rule in rules):
            return path_of(kind, known["id"], rule_id)
    raise ConfigurationError(f"no tenant has a {kind} {rule_id!r}; `tollkeeper {kind}s list TENANT` shows the ids")


def whole_number(text: str) -> int | str:
    """Give a written whole number as one, and anything else as it is, for the control plane to refuse by name."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 40 else text


def plain_usd(amount_usd: str) -> str:
    """Write USD exactly, without the zeros that its column pads it with: "0.000001", "50"."""
    return exact_text("pico_usd", pico_usd(Decimal(amount_usd)))


def scope_text(rule: Mapping[str, Any]) -> str:
    """Say whom a rule covers, as a refusal does: "level key '*', model 'small'"."""
    whom = f"level {rule['level']}" + (f" {rule['subject']!r}" if rule["subject"] else "")
    return f"{whom}, model {rule['model']!r}" if rule["model"] else whom


def refuse_no_change(changes: Mapping[str, Any], options: str) -> None:
    """Raise ConfigurationError where a change changes nothing."""
    if not changes:
        raise ConfigurationError(f"nothing to change was named; give one of {options}")


def second_of(moment: str | None) -> str:
    """Write a moment to the second, as it stands in the answer, with its offset."""
    if moment is None:
        return ""
    whole, _, rest = moment.partition(".")
    return whole + rest.lstrip("0123456789")
