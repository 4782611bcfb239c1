"""Row policies of the store for restricted viewers: a tenant, or one team, passed with each query.

The users `tenant_reader` and `team_reader` have row policies on what the asker says of itself; who says nothing is
answered with nothing. Tables that are not kept by tenant (by team) are not granted to them at all.
"""

import json
from typing import Final

TENANT_READER: Final = "tenant_reader"
TEAM_READER: Final = "team_reader"
# What carries it: a setting of any text, which the log of queries keeps, so that it also says whose question it was.
# Settings of one's own (custom_settings_prefixes) are not known to the embedded engine.
REACH_SETTING: Final = "log_comment"

# Tables with a row for each team: these have both columns.
TEAM_TABLES: Final = ("requests", "attempts", "requests_minute", "requests_hour", "requests_day", "book_entries")
# Tables with a row for each tenant.
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
# Rules of a whole tenant, which name no team: a team's viewers see their tenant's.
_RULES: Final = ("retention",)
# By user: the tables it may read, and which rows of each.
POLICIES: Final[dict[str, dict[str, str]]] = {
    TENANT_READER: dict.fromkeys((*TENANT_TABLES, *_RULES), _OF_TENANT),
    TEAM_READER: {**dict.fromkeys(TEAM_TABLES, _OF_TEAM), **dict.fromkeys(_RULES, _OF_TENANT)},
}


def told(tenant: str, team: str | None) -> dict[str, object]:
    """Return the settings that tell the policies whose rows are asked for."""
    reach = {"tenant": tenant} if team is None else {"tenant": tenant, "team": team}
    return {REACH_SETTING: json.dumps(reach, separators=(",", ":"))}
