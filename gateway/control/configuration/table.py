"""The kinds of objects in a configuration. A new kind is a class beside these and a row here.

Their order is that of creation: referenced objects come first. Removal is in reverse order.
"""

from typing import Any, Final

from pydantic import create_model

from gateway.config.entries import Entry
from gateway.control.configuration.kind import Kind
from gateway.control.configuration.organisation import Keys, Projects, Teams, Tenants
from gateway.control.configuration.serving import (
    Guardrails,
    Issuers,
    McpServers,
    Models,
    Playbooks,
    Pools,
    Rollouts,
    Routes,
    ToolRules,
)
from gateway.control.configuration.spending import Budgets, Limits, Prices, Rates, StandardCosts
from gateway.control.configuration.watching import AlertChannels, AlertRules, Slos

KINDS: Final[tuple[Kind[Any], ...]] = (
    Tenants(),
    Teams(),
    Projects(),
    Pools(),
    Models(),
    Routes(),
    Rollouts(),
    Prices(),
    StandardCosts(),
    Rates(),
    Issuers(),
    Keys(),
    McpServers(),
    ToolRules(),
    AlertChannels(),
    Limits(),
    Budgets(),
    Playbooks(),
    Guardrails(),
    Slos(),
    AlertRules(),
)
BY_SECTION: Final = {kind.section: kind for kind in KINDS}


def document_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, for editors."""
    fields: dict[str, Any] = {kind.section: (list[kind.entry], []) for kind in KINDS}  # type: ignore[name-defined]
    document = create_model("Configuration", __base__=Entry, __doc__="A configuration of Tollkeeper.", **fields)
    schema = document.model_json_schema()
    own = {"patternProperties": {"^x-": {"description": "A section of the file's own, such as one of anchors"}}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **own}
