"""Owners of rows, and serialising one tenant's writes from several gateways."""

from sqlalchemy import ColumnElement, Connection, FromClause, and_, text, true

from contracts.access.owner import Owner


def owned(table: FromClause, owner: Owner) -> ColumnElement[bool]:
    """Return the condition for what an owner may see: its project's rows, all of its team's, or all of its tenant's.

    Rows from before the owner was created are of an earlier one with the same id, and not among them.
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
    """Wait until no other transaction does the same for this tenant."""
    if connection.dialect.name == "postgresql":  # SQLite's writers wait for each other as they are
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": f"{what} {tenant}"})
