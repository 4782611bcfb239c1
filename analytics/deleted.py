"""Up to when single requests have been deleted by a tenant's own rule; sums of them stay."""

from datetime import UTC, datetime

from analytics.queries import query
from analytics.rows import number_of, text_of
from backends.store.client import StoreClient


def deleted_since(
    store: StoreClient, start: datetime, tenant: str | None, team: str | None
) -> tuple[datetime, str] | None:
    """Return until when requests that began after `start` have been deleted, and whose rule that was; `None`: none
    have.

    Of one tenant's team or, where `None`, of all. Raises StoreUnavailable.
    """
    (row,) = store.query(query("deleted_requests"), {"tenant": tenant, "team": team})
    deleted_until = number_of(row["deleted_until"])
    if deleted_until <= start.timestamp():
        return None
    return datetime.fromtimestamp(deleted_until, UTC), text_of(row["deleted_tenant"])
