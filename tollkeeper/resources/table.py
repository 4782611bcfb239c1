"""The table of resources: all kinds of objects of the control plane.

To add a kind, declare a `Resource` in a file of this package and list it here; its commands, help, shell completion and
golden files follow. If it also belongs to configuration files, add a row to `gateway/control/configuration/table.py`.
"""

from typing import Final

from tollkeeper.resources.alerting import ALERT_RULES, CHANNELS, SLOS
from tollkeeper.resources.guarding import GUARDRAILS, MCP_SERVERS, TOOL_RULES
from tollkeeper.resources.organisation import ISSUERS, KEYS, PROJECTS, TEAMS, TENANTS, TOKENS
from tollkeeper.resources.resource import Resource
from tollkeeper.resources.serving import MODELS, PLAYBOOKS, POOLS, ROLLOUTS, ROUTES, TARGETS
from tollkeeper.resources.spending import BUDGETS, LIMITS, PRICES, RATES, STANDARD_COSTS

RESOURCES: Final[tuple[Resource, ...]] = (
    *(TENANTS, TEAMS, PROJECTS, KEYS, TOKENS, ISSUERS),
    *(POOLS, TARGETS, MODELS, ROUTES, ROLLOUTS, PLAYBOOKS, GUARDRAILS),
    *(MCP_SERVERS, TOOL_RULES),
    *(PRICES, STANDARD_COSTS, RATES, LIMITS, BUDGETS),
    *(SLOS, CHANNELS, ALERT_RULES),
)
BY_NAME: Final = {resource.name: resource for resource in RESOURCES}
