"""Row policies of the store for restricted viewers, whose tenant or team is passed with each query.

The users `tenant_reader` and `team_reader` have row policies on that value; without it they get no rows. Tables without
a tenant (or team) column are not granted to them.
"""

import json
from typing import Final

TENANT_READER: Final = "tenant_reader"
TEAM_READER: Final = "team_reader"
# The setting with tenant and team: a free text that the query log also stores, so that the log names the viewer. The
# embedded engine does not support custom settings (custom_settings_prefixes).
REACH_SETTING: Final = "log_comment"

# Tables with columns for tenant and team.
TEAM_TABLES: Final = ("requests", "attempts", "requests_minute", "requests_hour", "requests_day", "book_entries")
# Tables with a column for the tenant.
TENANT_TABLES: Final = (
    *TEAM_TABLES,
    "distinct_values",
    "requests_recent",
    "latency_day",
    "tenant_cost_day",
    "tenant_model_day",
    "tenant_hour",
    "indicators_minute",
    "indicators_hour",
    "engine_tenant_minutes",
    "gpu_tenant_hours",
    "kv_events",
    "feedback",
    "content",
    "traces",
    "metrics",
    "logs",
)

_TOLD: Final = f"JSONExtractString(getSetting('{REACH_SETTING}'), '%s')"
_OF_TENANT: Final = f"tenant = {_TOLD % 'tenant'} AND tenant != ''"
_OF_TEAM: Final = f"{_OF_TENANT} AND team = {_TOLD % 'team'} AND team != ''"
# Retention rules have no team: a team's viewers see those of their tenant.
_RULES: Final = ("retention",)
# By user: the tables that it may read, with the condition for rows.
POLICIES: Final[dict[str, dict[str, str]]] = {
    TENANT_READER: dict.fromkeys((*TENANT_TABLES, *_RULES), _OF_TENANT),
    TEAM_READER: {**dict.fromkeys(TEAM_TABLES, _OF_TEAM), **dict.fromkeys(_RULES, _OF_TENANT)},
}


def row_policy_settings(tenant: str, team: str | None) -> dict[str, object]:
    """Return the query settings that select the tenant, and the team unless it is `None`."""
    reach = {"tenant": tenant} if team is None else {"tenant": tenant, "team": team}
    return {REACH_SETTING: json.dumps(reach, separators=(",", ":"))}
