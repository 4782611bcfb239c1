"""Limits in the control database: one per scope, metric and window, without contradictions."""

from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.bounds import refuse_beyond_bounds, visible_rules
from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from backends.control.row_names import row_name
from backends.control.rule_scope import checked_scope
from backends.control.rules import limit_spec
from contracts.control import Limit
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.recording.ids import uuid7
from contracts.recording.moments import unix_ns
from contracts.rules.limits import LimitSpec
from contracts.rules.rule_words import contradiction_text, find_contradiction, limit_text


@dataclass(frozen=True, slots=True)
class NewLimit:
    """A limit to create. `amount` is in the metric's unit; money is in `amount_usd` instead."""

    tenant_id: str
    level: str
    metric: str
    amount: int | None = None
    amount_usd: Decimal | None = None
    window: str | None = None
    subject: str = ""
    model: str = ""
    when_away: str = "share"
    when_unpriced: str = "refuse"
    id: str = ""  # empty: generated


@dataclass(frozen=True, slots=True)
class LimitChange:
    """New values for a limit; `None` leaves one as it is."""

    amount: int | None = None
    amount_usd: Decimal | None = None
    when_away: str | None = None
    when_unpriced: str | None = None


def create_limit(session: Session, author: Author, new: NewLimit) -> Limit:
    """Add a limit.

    Raises NotFound on an unknown tenant; InvalidRequest if a field is unknown, out of range or contradicts the others;
    Conflict if the scope has a limit of this metric and window, or one that contradicts it.
    """
    limit_id = new.id or f"lim_{uuid7(unix_ns(author.at)).hex}"
    entry = begin_change(session, author, "limit.create", f"{new.tenant_id}/{limit_id}")
    scope = checked_scope(session, new.tenant_id, new.level, new.subject, new.model)
    refuse_beyond_bounds(session, author, scope.level, scope.subject)
    if new.id and session.get(Limit, new.id) is not None:
        raise Conflict(f"a limit {new.id!r} exists already; choose another id", param="id")
    row = Limit(
        id=limit_id,
        tenant_id=new.tenant_id,
        level=scope.level,
        subject=scope.subject,
        model=scope.model,
        metric=new.metric,
        window=new.window or "",
        amount=new.amount,
        amount_usd=new.amount_usd,
        when_away=new.when_away,
        when_unpriced=new.when_unpriced,
        created_at=author.at,
        updated_at=author.at,
    )
    spec = _checked_spec(row)
    _check_rivals(session, row, spec)
    session.add(row)
    entry.detail = {**_scope_detail(row), "after": _values(row)}
    session.flush()
    return row


def list_limits(
    session: Session, tenant_id: str, *, after: str = "", limit: int = 100, team_id: str = ""
) -> list[Limit]:
    """Return up to `limit` limits of a tenant after an id, oldest first; of one team if it is named.

    Raises NotFound on the tenant.
    """
    get_tenant(session, tenant_id)
    wanted = select(Limit).where(visible_rules(Limit, tenant_id, team_id), Limit.id > after)
    return list(session.scalars(wanted.order_by(Limit.id).limit(limit)))


def get_limit(session: Session, tenant_id: str, limit_id: str, *, team_id: str = "") -> Limit:
    """Return a limit of this tenant, and of one team if it is named. Raises NotFound, also for any other's."""
    get_tenant(session, tenant_id)
    of_it = (Limit.id == limit_id, visible_rules(Limit, tenant_id, team_id))
    row = session.scalars(select(Limit).where(*of_it)).first()
    if row is None:
        raise NotFound(f"tenant {tenant_id!r} has no limit {limit_id!r}", rows=[row_name(Limit, limit_id)])
    return row


def update_limit(session: Session, author: Author, tenant_id: str, limit_id: str, change: LimitChange) -> Limit:
    """Change a limit's amount, or `when_away` and `when_unpriced`. Raises as `create_limit` does."""
    entry = begin_change(session, author, "limit.update", f"{tenant_id}/{limit_id}")
    row = get_limit(session, tenant_id, limit_id)
    refuse_beyond_bounds(session, author, row.level, row.subject)
    before = _values(row)
    with session.no_autoflush:  # the change must not be written before it is checked
        for name in ("amount", "amount_usd", "when_away", "when_unpriced"):
            value = getattr(change, name)
            if value is not None:
                setattr(row, name, value)
        row.updated_at = author.at
        spec = _checked_spec(row)
        _check_rivals(session, row, spec)
    entry.detail = {**_scope_detail(row), "before": before, "after": _values(row)}
    session.flush()
    return row


def delete_limit(session: Session, author: Author, tenant_id: str, limit_id: str) -> None:
    """Remove a limit with its counts. Raises NotFound."""
    entry = begin_change(session, author, "limit.delete", f"{tenant_id}/{limit_id}")
    row = get_limit(session, tenant_id, limit_id)
    refuse_beyond_bounds(session, author, row.level, row.subject)
    entry.detail = {**_scope_detail(row), "before": _values(row)}
    session.delete(row)
    session.flush()


def _checked_spec(row: Limit) -> LimitSpec:
    try:
        return limit_spec(row)
    except ConfigurationError as error:
        # Without the id, which is unknown to the caller who creates a limit.
        field = _amount_field(row) if error.param in (None, "amount") else error.param
        raise InvalidRequest(error.fault, param=field) from error


def _amount_field(row: Limit) -> str:
    return "amount_usd" if row.metric == "usd" else "amount"


def _check_rivals(session: Session, row: Limit, spec: LimitSpec) -> None:
    same_scope = (
        Limit.tenant_id == row.tenant_id,
        Limit.level == row.level,
        Limit.subject == row.subject,
        Limit.model == row.model,
        Limit.metric == row.metric,
        Limit.id != row.id,
    )
    rivals = list(session.scalars(select(Limit).where(*same_scope)))
    for rival in rivals:
        if rival.window == row.window:
            raise Conflict(
                f"limit {rival.id!r} counts the same already: {limit_text(limit_spec(rival))} for this scope; "
                "change that one, or delete it first",
                param="metric",
            )
    found = find_contradiction([*map(limit_spec, rivals), spec])
    if found is not None:
        raise Conflict(contradiction_text(*found), param=_amount_field(row))


def _scope_detail(row: Limit) -> dict[str, object]:
    stated: dict[str, object] = {"level": row.level, "subject": row.subject, "model": row.model, "metric": row.metric}
    return {**stated, "window": row.window or None}


def _values(row: Limit) -> dict[str, object]:
    amount: dict[str, object] = {"amount": row.amount}
    if row.amount_usd is not None:
        amount = {"amount_usd": format(row.amount_usd, "f")}
    return {**amount, "when_away": row.when_away, "when_unpriced": row.when_unpriced}
