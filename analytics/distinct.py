"""What a filter can choose from: the tenants, models, teams and so on that were ever seen, and when last."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient

Kind = Literal["tenant", "model", "team", "project", "key_id", "route", "provider", "replica"]

MAX_VALUES: Final = 5_000  # a list that long is searched by typing, not by scrolling


@dataclass(frozen=True, slots=True)
class Seen:
    """One value and when a request last carried it (UTC, to the second)."""

    value: str
    last_seen: datetime


def distinct(store: StoreClient, kind: Kind, tenant: str | None = None) -> tuple[Seen, ...]:
    """List the values of a kind, of one tenant or of all, sorted by name. Raises StoreUnavailable."""
    parameters = {"kind": kind, "tenant": tenant, "value_limit": MAX_VALUES}
    return tuple(
        Seen(text_of(row["value"]), datetime.fromtimestamp(number_of(row["last_seen_s"]), UTC))
        for row in store.query(query("distinct"), parameters)
    )
