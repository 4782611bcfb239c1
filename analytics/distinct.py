"""Values for filters: all recorded tenants, models, teams and so on, each with the time when it was last seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient
from contracts.control import ApiKey, Model, Project, Route, Team, Tenant

Kind = Literal["tenant", "model", "team", "project", "key_id", "route", "provider", "replica"]

MAX_VALUES: Final = 5_000  # maximum length of a list, which users search by typing
_TABLES: Final[Mapping[Kind, Any]] = {
    "tenant": Tenant,
    "team": Team,
    "project": Project,
    "key_id": ApiKey,
    "model": Model,
    "route": Route,
}
_TEAM_REACH: Final = timedelta(days=31)  # look-back for a team's values, which are read from single requests


@dataclass(frozen=True, slots=True)
class DistinctValue:
    """One value, and the time of the last request with it (UTC, to the second)."""

    value: str
    last_seen: datetime


def made_in_order(session: Session, kind: Kind, tenant: str | None = None) -> tuple[str, ...]:
    """Return the names of a kind in the control database, of one tenant or of all, oldest first."""
    table = _TABLES.get(kind)
    if table is None:
        return ()
    wanted = select(table.id).order_by(table.created_at, table.id)
    if tenant is not None:
        owner = {"tenant": Tenant.id, "team": Team.tenant_id, "project": Project.tenant_id, "key_id": ApiKey.tenant_id}
        wanted = wanted.where(owner[kind] == tenant) if kind in owner else wanted
    return tuple(dict.fromkeys(session.scalars(wanted)))


def distinct(store: StoreClient, kind: Kind, tenant: str | None = None) -> tuple[DistinctValue, ...]:
    """Return the recorded values of a kind, of one tenant or of all, sorted by name. Raises StoreUnavailable."""
    parameters = {"kind": kind, "tenant": tenant, "value_limit": MAX_VALUES}
    return tuple(
        DistinctValue(text_of(row["value"]), datetime.fromtimestamp(number_of(row["last_seen_s"]), UTC))
        for row in store.query(query("distinct"), parameters)
    )


def distinct_of_team(
    store: StoreClient, kind: Literal["model", "project", "key_id"], tenant: str, team: str, now: datetime
) -> tuple[DistinctValue, ...]:
    """Return the values of a kind that one team used in the last 31 days, sorted by name. Raises StoreUnavailable."""
    hour = int(now.timestamp()) // 3_600 * 3_600
    parameters = {
        "dimension": kind,
        "tenant": tenant,
        "team": team,
        "start": hour - int(_TEAM_REACH.total_seconds()),
        "end": hour + 2 * 3_600,  # includes the current hour, and clocks that are ahead
        "value_limit": MAX_VALUES,
    }
    return tuple(
        DistinctValue(text_of(row["value"]), datetime.fromtimestamp(number_of(row["last_seen_s"]), UTC))
        for row in store.query(query("team_values"), parameters)
    )
