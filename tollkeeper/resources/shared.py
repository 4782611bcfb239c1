"""Parents, fields and columns that several resources share."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, get_args

from contracts.rules.limits import PRIORITY_CLASSES, WhenAway, WhenUnpriced
from tollkeeper.resources.resource import Field, Parent, Row

TENANT: Final = Parent("tenant", "tenant", "/v1/tenants")
TEAM: Final = Parent("team", "team", "/v1/tenants/{tenant}/teams")
POOL: Final = Parent("pool", "pool", "/v1/pools")
VALID_TO: Final = (
    Field("valid_to", "End, exclusive (default: none).", verbs=("create",)),
    Field("valid_to", "End, exclusive, such as 2027-01-31T00:00:00Z, or now.", is_required=True, verbs=("set",)),
)
VALID_FROM: Final = Field("valid_from", "Start, such as 2027-01-31T00:00:00Z (default: always).", verbs=("create",))
WHEN_UNPRICED: Final = Field(
    "when_unpriced",
    "If a model has no price: refuse or allow its requests (default refuse).",
    choices=get_args(WhenUnpriced),
)
SUBJECT: Final = Field(
    "subject",
    "Who it applies to, depending on --level: TEAM, TEAM/PROJECT, key id, user, or NAME=VALUE of a tag; '*' gives each "
    "its own counter.",
    verbs=("create",),
)
SCOPES: Final = (
    Field("models", "Model or route it may use; repeat for more (default: all).", "list", "--model"),
    Field(
        "endpoints",
        "Endpoint it may use, such as chat.completions; repeat for more (default: all).",
        "list",
        "--endpoint",
    ),
    Field(
        "addresses",
        "Network that its requests may come from, such as 10.0.0.0/8; repeat for more (default: any).",
        "list",
        "--address",
    ),
    Field("priority", "Highest priority class it may ask for.", choices=PRIORITY_CLASSES),
    Field("max_reasoning_effort", "Highest reasoning effort it may ask for, such as low."),
    Field("max_thinking_tokens", "Maximum reasoning tokens of one answer.", "whole"),
)


def word(function: str) -> Callable[[Row], str]:
    """Return a function that calls a function of `words`, which is imported when a row is shown."""
    return lambda row: str(getattr(import_module("tollkeeper.resources.words"), function)(row))


def when_away(default: WhenAway) -> Field:
    """Return the field for a limit's or budget's behaviour if Redis is unreachable."""
    return Field(
        "when_away",
        f"If Redis is unreachable: refuse, or share (each gateway allows its part; default {default}).",
        choices=get_args(WhenAway),
    )


def rules_file(noun: str, example: str, *, required: bool = False, holds: str = "rules") -> Field:
    """Return the field for an object's definition in a file; `holds` is the noun for the file's contents."""
    return Field(
        "rules", f"YAML or JSON file with the {noun}'s {holds}, such as {example}.", "file", is_required=required
    )


def named(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    """Return the body of `create` with the id as the name, if no name was given."""
    return body if stored is not None else {"name": body.get("id"), **body}


def ends_now(body: dict[str, Any], stored: Row | None) -> dict[str, Any]:
    """Return the body of `end` with the current time as `valid_to`, if that is `now`."""
    if stored is not None and body.get("valid_to") == "now":
        from datetime import UTC, datetime  # imported here: rarely needed

        body["valid_to"] = datetime.now(UTC).isoformat()
    return body


def validity(row: Row) -> str:
    """Return the validity of a card or rate: "always", "from 2027-01-01", "until 2027-02-01", or with both dates."""
    begins, ends = str(row["valid_from"])[:10], str(row["valid_to"] or "")[:10]
    said = ([] if begins == "1970-01-01" else [f"from {begins}"]) + ([f"until {ends}"] if ends else [])
    return " ".join(said) or "always"
