"""Erases a tenant or an end user from the control database, and exports what it stores about them."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from backends.control.abuse_incidents import forget_callers
from backends.control.audit_chain import ERASED, ERASED_ENTRIES
from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from backends.control.saved_views import delete_views_of, views_about
from backends.control.unreadable_rows import require_all_read
from contracts.control import (
    Alert,
    AlertChannel,
    AlertDelivery,
    AuditEntry,
    Base,
    Budget,
    BudgetEvent,
    BudgetState,
    CostRate,
    Limit,
    RoleGrant,
    SavedView,
    Tenant,
    User,
    UserSession,
)
from contracts.errors import Conflict

# Left out of exports: useless to the person, but useful to an attacker.
_SECRET: Final = frozenset({"digest", "password_digest", "webhook_sealed", "salt"})
_NAMED_APART: Final = ("price", "issuer")  # kinds of audit entries whose subject does not begin with its tenant


def erase_tenant(session: Session, author: Author, tenant_id: str) -> int:
    """Delete an inactive tenant with everything it owns, and remove its name from the audit log; return the number of
    rows.

    Raises NotFound, and Conflict while it is active: its keys must be refused before its rows are deleted, or they are
    written again.
    """
    digest = hashlib.sha256(tenant_id.encode()).hexdigest()
    entry = begin_change(session, author, "tenant.erase", ERASED, {"sha256": digest})
    tenant = get_tenant(session, tenant_id)
    if tenant.is_active:
        raise Conflict(f"tenant {tenant_id!r} is active; refuse its keys first, by is_active false")
    rows = sum(len(found) for table, found in export_tenant(session, tenant_id) if table != AuditEntry.__tablename__)
    for version in session.scalars(select(CostRate.version).where(_of_terms(tenant_id))):
        _forget_in_audit(session, entry, and_(AuditEntry.action.startswith("rate."), AuditEntry.subject == version))
    session.execute(delete(CostRate).where(_of_terms(tenant_id)))
    for table in Base.metadata.sorted_tables:
        if table.name != Tenant.__tablename__ and "tenant_id" in table.columns and not _goes_with_tenant(table):
            session.execute(delete(table).where(table.columns["tenant_id"] == tenant_id))
    session.delete(tenant)
    _forget_accounts(session)
    session.execute(delete(SavedView).where(_about(session, tenant_id)))
    _forget_in_notices(session, tenant_id)
    _forget_in_audit(session, entry, or_(*(_of_tenant(tenant_id))))
    for kind in _NAMED_APART:
        _forget_named_apart(session, entry, kind, tenant_id)
    require_all_read(session)  # unreadable rows would not be erased
    session.flush()
    return rows


def erase_user(session: Session, author: Author, tenant_id: str, user: str) -> int:
    """Delete what counts or restricts an end user of a tenant, and remove the name from the audit log; return the
    number of rows.

    The spending of the tenant as a whole stays. Abuse incidents do not state which end user called, so the networks and
    user agents of all callers are removed from them. Raises NotFound on the tenant.
    """
    digest = hashlib.sha256(user.encode()).hexdigest()
    entry = begin_change(session, author, "user.erase", tenant_id, {"sha256": digest})
    get_tenant(session, tenant_id)
    rules: list[str] = []
    for kind in (Limit, Budget):
        of_user = (kind.tenant_id == tenant_id, kind.level == "user", kind.subject == user)
        rules += session.scalars(select(kind.id).where(*of_user))
    rows = 0
    for table, where in _of_user(session, tenant_id, user):
        found = session.execute(select(table).where(where)).all()
        session.execute(delete(table).where(where))
        rows += len(found)
    _forget_in_notices(session, tenant_id, user)
    forget_callers(session, tenant_id)
    for rule in rules:
        _forget_in_audit(session, entry, AuditEntry.subject == f"{tenant_id}/{rule}")
    require_all_read(session)
    session.flush()
    return rows


def export_tenant(session: Session, tenant_id: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a tenant's rows by table, as JSON lines without digests of secrets; empty tables are left out."""
    of_its_budgets = select(Budget.id).where(Budget.tenant_id == tenant_id)
    for table in Base.metadata.sorted_tables:
        if table.name == Tenant.__tablename__:
            where: ColumnElement[bool] = table.columns["id"] == tenant_id
        elif "tenant_id" in table.columns:
            where = table.columns["tenant_id"] == tenant_id
        elif "budget_id" in table.columns:
            where = table.columns["budget_id"].in_(of_its_budgets)
        elif table.name == CostRate.__tablename__:
            where = _of_terms(tenant_id)
        elif table.name == AuditEntry.__tablename__:
            where = or_(*_of_tenant(tenant_id))
        else:
            continue
        if lines := _lines(session, table, where):
            yield table.name, lines


def export_user(session: Session, tenant_id: str, user: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows that count or restrict an end user of a tenant, as `export_tenant` does."""
    for table, where in _of_user(session, tenant_id, user):
        if lines := _lines(session, table, where):
            yield table.name, lines


def _of_user(session: Session, tenant_id: str, user: str) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """Yield the tables that name end users, with the rows of this one; referencing rows come first."""
    by_user = select(Budget.id).where(Budget.tenant_id == tenant_id, Budget.level == "user")
    for kind in (BudgetEvent, BudgetState):
        yield kind.__table__, and_(kind.subject == user, kind.budget_id.in_(by_user))  # type: ignore[misc]  # a Table
    for rule in (Budget, Limit):
        yield (
            rule.__table__,  # type: ignore[misc]  # as above
            and_(rule.tenant_id == tenant_id, rule.level == "user", rule.subject == user),
        )
    named = (Alert.facts["level"].as_string() == "user", Alert.facts["subject"].as_string() == user)
    yield Alert.__table__, and_(Alert.tenant_id == tenant_id, *named)  # type: ignore[misc]  # as above
    yield SavedView.__table__, _about(session, tenant_id, user)  # type: ignore[misc]  # as above


def _about(session: Session, tenant_id: str, user: str = "") -> ColumnElement[bool]:
    return SavedView.id.in_(views_about(session, tenant_id, user))


def _of_tenant(tenant_id: str) -> list[ColumnElement[bool]]:
    return [AuditEntry.subject == tenant_id, AuditEntry.subject.startswith(f"{tenant_id}/", autoescape=True)]


def _of_terms(tenant_id: str) -> ColumnElement[bool]:
    return and_(CostRate.kind == "terms", CostRate.subject == tenant_id)


def _goes_with_tenant(table: Table) -> bool:
    return any(
        key.column.table.name == Tenant.__tablename__ and key.ondelete == "CASCADE" for key in table.foreign_keys
    )


def _forget_named_apart(session: Session, erasure: AuditEntry, kind: str, tenant_id: str) -> None:
    """Erase the audit entries about a tenant's objects whose subject does not begin with the tenant."""
    of_kind = AuditEntry.action.startswith(f"{kind}.", autoescape=True)
    whose = or_(*(AuditEntry.detail[field].as_string() == tenant_id for field in ("tenant", "tenant_id")))
    names = set(session.scalars(select(AuditEntry.subject).where(of_kind, whose)))
    if names:
        _forget_in_audit(session, erasure, and_(of_kind, AuditEntry.subject.in_(names)))


def _forget_accounts(session: Session) -> None:
    """Delete the accounts of people whose only role was within the tenant, and their sessions."""
    left = list(session.scalars(select(User.id).where(User.id.not_in(select(RoleGrant.user_id)))))
    session.execute(delete(UserSession).where(UserSession.user_id.in_(left)))
    for user_id in left:
        delete_views_of(session, user_id)
    session.execute(delete(User).where(User.id.in_(left)))


def _forget_in_notices(session: Session, tenant_id: str, user: str = "") -> None:
    """Remove alerts about a tenant, or about one of its end users, from notifications; a notification without others is
    deleted.
    """
    for row in session.scalars(select(AlertDelivery).where(AlertDelivery.tenant_id.in_(("", tenant_id)))):
        told = row.body.get("alerts")
        if not isinstance(told, list):
            continue
        kept = [alert for alert in told if not _is_about(alert, tenant_id, user)]
        if told and not kept:
            session.delete(row)
        elif len(kept) < len(told):
            row.body = {**row.body, "alerts": kept}


def _is_about(alert: Any, tenant_id: str, user: str) -> bool:
    facts = alert.get("facts", {})
    is_user = not user or (facts.get("level"), facts.get("subject")) == ("user", user)
    return alert.get("tenant") == tenant_id and is_user


def _forget_in_audit(session: Session, erasure: AuditEntry, where: ColumnElement[bool]) -> None:
    """Erase the content of audit entries; who acted and when stays, since a log with gaps would prove nothing.

    The erasure's own entry lists the entries that it empties, and those that an earlier, now emptied erasure had
    listed: any other empty entry was tampered with.
    """
    found = session.execute(select(AuditEntry.id, AuditEntry.detail).where(where, AuditEntry.id < erasure.id)).all()
    emptied = {row.id for row in found}
    for row in found:
        named = row.detail.get(ERASED_ENTRIES)
        emptied.update(named if isinstance(named, list) else ())
    session.execute(update(AuditEntry).where(AuditEntry.id.in_(emptied)).values(subject=ERASED, detail={}, salt=""))
    before = erasure.detail.get(ERASED_ENTRIES, [])
    assert isinstance(before, list)  # written as a list by this module
    erasure.detail = {**erasure.detail, ERASED_ENTRIES: sorted({*before, *emptied})}


def _lines(session: Session, table: Table, where: ColumnElement[bool]) -> list[str]:
    lines = []
    for row in session.execute(select(table).where(where)):
        facts = {name: _plain(value) for name, value in row._mapping.items() if name not in _SECRET}
        if table.name == AlertChannel.__tablename__:
            facts["address"] = facts["shown"]  # the full address lets anyone post there
        lines.append(json.dumps(facts, sort_keys=True))
    return lines


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | dict | list | None) else str(value)
