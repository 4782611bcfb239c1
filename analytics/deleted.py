"""Finds until when single requests were deleted by a tenant's retention rule; their sums remain."""

from datetime import UTC, datetime

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient


def deleted_since(
    store: StoreClient, start: datetime, tenant: str | None, team: str | None
) -> tuple[datetime, str] | None:
    """Return until when requests that started after `start` were deleted, and the rule's tenant; `None` if none were.

    Of one tenant and team, or of all if `None`. Raises StoreUnavailable.
    """
    (row,) = store.query(query("deleted_requests"), {"tenant": tenant, "team": team})
    deleted_until = number_of(row["deleted_until"])
    if deleted_until <= start.timestamp():
        return None
    return datetime.fromtimestamp(deleted_until, UTC), text_of(row["deleted_tenant"])
