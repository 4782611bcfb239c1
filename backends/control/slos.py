"""Objectives in the control database, and the holds that objectives at risk set."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.budget_states import insert_into
from backends.control.changes import Author, begin_change
from backends.control.organisation import check_reach
from backends.control.row_names import row_name
from contracts.control import PolicyHold, Slo
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.rules.objectives import Indicator, Objective

_log = logging.getLogger(__name__)

_HOLD_LASTS: Final = timedelta(minutes=15)  # unless it is extended: the evaluator may be down or disabled
_PROLONGED_BELOW: Final = timedelta(minutes=10)  # remaining time; extending more often would make gateways reload


@dataclass(frozen=True, slots=True)
class NewSlo:
    """An objective to create; see `contracts.rules.objectives.Objective`."""

    id: str
    indicator: str
    target_percent: Decimal
    thresholds_ms: Mapping[str, Decimal] = field(default_factory=dict)
    window_days: int = 28
    tenant: str = ""
    model: str = ""
    route: str = ""
    prompt_class: str = ""
    min_events: int = 20
    hooks: Sequence[str] = ()

    def objective(self) -> Objective:
        """Build and check the objective. Raises InvalidRequest."""
        if self.prompt_class and "shed_batch" in self.hooks:
            raise InvalidRequest(
                f"shed_batch would hold back batches with prompts of every length, and the objective is about "
                f"{self.prompt_class} ones; leave prompt_class out, or the hook",
                param="hooks",
                code="slo_hook_too_wide",
            )
        return Objective(
            id=self.id,
            indicator=cast(Indicator, self.indicator),
            target_percent=self.target_percent,
            thresholds_ms=dict(self.thresholds_ms),
            window_days=self.window_days,
            tenant=self.tenant,
            model=self.model,
            route=self.route,
            prompt_class=self.prompt_class,
            min_events=self.min_events,
            hooks=tuple(self.hooks),
        )


def put_slo(session: Session, author: Author, new: NewSlo, *, replaces: bool) -> Slo:
    """Add an objective; with `replaces`, replace the one with this id if it exists.

    Raises InvalidRequest as `Objective` does, Conflict if the id is in use and `replaces` is not set, NotFound on an
    unknown tenant, and on another tenant than the author is restricted to.
    """
    entry = begin_change(session, author, "slo.set" if replaces else "slo.create", _subject(new.tenant, new.id))
    objective = new.objective()
    check_reach(session, author, objective.tenant)
    row = session.get(Slo, new.id)
    if row is not None and (not replaces or author.tenant_id not in ("", row.tenant_id)):
        raise Conflict(f"objective {new.id!r} exists already; choose another id, or set that one", param="id")
    if row is None:
        row = Slo(id=new.id, created_at=author.at)
        session.add(row)
    row.tenant_id, row.model, row.route = objective.tenant, objective.model, objective.route
    row.prompt_class, row.indicator = objective.prompt_class, objective.indicator
    row.thresholds_ms = {name: format(value, "f") for name, value in objective.thresholds_ms.items()}
    row.target_percent, row.window_days = objective.target_percent, objective.window_days
    row.min_events, row.hooks, row.updated_at = objective.min_events, list(objective.hooks), author.at
    entry.detail = {"indicator": row.indicator, "target_percent": str(row.target_percent), "model": row.model}
    session.flush()
    return row


def list_slos(session: Session, *, tenant: str = "", after: str = "", limit: int = 100) -> list[Slo]:
    """Return up to `limit` objectives after an id; those of one tenant if it is not empty."""
    wanted = select(Slo).where(Slo.id > after).order_by(Slo.id).limit(limit)
    return list(session.scalars(wanted.where(Slo.tenant_id == tenant) if tenant else wanted))


def get_slo(session: Session, slo_id: str, *, tenant: str = "") -> Slo:
    """Return an objective. Raises NotFound, also for one of another tenant than named."""
    row = session.get(Slo, slo_id)
    if row is None or tenant not in ("", row.tenant_id):
        raise NotFound(
            f"objective {slo_id!r} does not exist; `tollkeeper slo list` shows those that do",
            rows=[row_name(Slo, slo_id)],
        )
    return row


def delete_slo(session: Session, author: Author, slo_id: str) -> None:
    """Remove an objective with its holds. Raises NotFound."""
    row = get_slo(session, slo_id, tenant=author.tenant_id)
    begin_change(session, author, "slo.delete", _subject(row.tenant_id, slo_id))
    for hold in session.scalars(select(PolicyHold).where(PolicyHold.slo_id == slo_id)):
        session.delete(hold)
        begin_change(session, author, "policy_hold.delete", _subject(row.tenant_id, slo_id))
    session.delete(row)
    session.flush()


def objective_of(row: Slo) -> Objective:
    """Build the objective in a row. Raises InvalidRequest if the row is invalid."""
    return Objective(
        id=row.id,
        indicator=cast(Indicator, row.indicator),
        target_percent=row.target_percent,
        thresholds_ms={name: Decimal(value) for name, value in row.thresholds_ms.items()},
        window_days=row.window_days,
        tenant=row.tenant_id,
        model=row.model,
        route=row.route,
        prompt_class=row.prompt_class,
        min_events=row.min_events,
        hooks=tuple(row.hooks),
    )


def load_objectives(session: Session, *, tenant: str = "") -> list[Objective]:
    """Return all objectives, or those of one tenant, by id. An unreadable one is left out and logged."""
    wanted = select(Slo).order_by(Slo.id)
    found = []
    for row in session.scalars(wanted.where(Slo.tenant_id == tenant) if tenant else wanted):
        try:
            found.append(objective_of(row))
        except (InvalidRequest, ArithmeticError, TypeError, AttributeError) as error:
            _log.warning("objective_unreadable", extra={"objective": row.id, "error": type(error).__name__})
    return found


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold that an objective sets while it is at risk."""

    slo: str
    hook: str
    tenant: str
    model: str
    reason: str
    route: str = ""


def write_holds(session: Session, wanted: Iterable[Hold], now: datetime) -> int:
    """Make these holds active and end all others; return how many changed. `since` is when a hold last changed.

    A hold lasts 15 minutes, and is extended once less than 10 are left. Each change or extension raises the revision
    that gateways poll, and has an audit entry.
    """
    by_key = {(hold.slo, hold.hook): hold for hold in wanted}
    changed = 0
    for row in session.scalars(select(PolicyHold)):
        hold = by_key.pop((row.slo_id, row.hook), None)
        if hold is None:
            wanted_now = (False, row.tenant_id, row.model, row.route)
        else:  # the objective's scope may have changed
            wanted_now = (True, hold.tenant, hold.model, hold.route)
        if (row.is_active, row.tenant_id, row.model, row.route) != wanted_now:
            row.is_active, row.tenant_id, row.model, row.route = wanted_now
            row.since, row.reason = now, "" if hold is None else hold.reason[:300]
            row.until = now if hold is None else now + _HOLD_LASTS
            changed += 1
        elif hold is not None and row.until - now < _PROLONGED_BELOW:
            row.until = now + _HOLD_LASTS
            changed += 1
    insert: Any = insert_into(session, PolicyHold)
    for hold in by_key.values():
        about = {"slo_id": hold.slo, "hook": hold.hook, "tenant_id": hold.tenant, "model": hold.model}
        stands = {"is_active": True, "since": now, "until": now + _HOLD_LASTS, "reason": hold.reason[:300]}
        session.execute(insert.values(**about, **stands, route=hold.route).on_conflict_do_nothing())
        changed += 1
    session.flush()
    if changed:
        begin_change(session, Author("alerts", now), "policy_hold.change", f"{changed} holds")
    return changed


def list_holds(session: Session, now: datetime, *, tenant: str = "") -> list[PolicyHold]:
    """Return the active holds, of one tenant if it is named."""
    wanted = select(PolicyHold).where(PolicyHold.is_active, PolicyHold.until > now)
    wanted = wanted.order_by(PolicyHold.slo_id, PolicyHold.hook)
    return list(session.scalars(wanted.where(PolicyHold.tenant_id == tenant) if tenant else wanted))


def _subject(tenant: str, slo_id: str) -> str:
    return f"{tenant}/{slo_id}" if tenant else slo_id
