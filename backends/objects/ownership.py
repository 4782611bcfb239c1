"""Ownership conditions for rows, and a lock per tenant for writes from several gateways."""

from sqlalchemy import ColumnElement, Connection, FromClause, and_, text, true

from contracts.access.owner import Owner


def owned(table: FromClause, owner: Owner) -> ColumnElement[bool]:
    """Return the SQL condition for the rows that an owner may see: those of its project, team or tenant.

    Rows from before the owner's creation belong to an earlier owner with the same id, and are excluded.
    """
    within = table.c.project.startswith(owner.project, autoescape=True) if owner.is_of_team else None
    if within is None:
        within = table.c.project == owner.project if owner.project else true()
    return and_(table.c.tenant == owner.tenant, within, _is_since(table, owner.since_ns))


def _is_since(table: FromClause, since_ns: int) -> ColumnElement[bool]:
    if not since_ns:
        return true()
    if "created_ns" in table.c:
        return table.c.created_ns >= since_ns
    return table.c.created_unix >= since_ns // 1_000_000_000


def wait_for_tenant(connection: Connection, what: str, tenant: str) -> None:
    """Lock a tenant's objects of one kind until the transaction's end."""
    if connection.dialect.name == "postgresql":  # SQLite serialises writers itself
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": f"{what} {tenant}"})
