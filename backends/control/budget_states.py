"""Spending of budgets, written by gateways in the background without raising the configuration's revision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import Insert, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from contracts.control import Base, Budget, BudgetState
from contracts.recording.moments import unix_ns, utc_moment

_CHUNK_ROWS: Final = 500
RECOUNT: Final = "(recount)"  # in place of a gateway's name, which has no parentheses: see `budget_recounts`
_KEY: Final = ("budget_id", "period_start", "subject", "gateway")


@dataclass(frozen=True, slots=True)
class GatewayState:
    """What one gateway has charged to one subject of a budget in one period: pico-USD or GPU nanoseconds.

    `period_start_ns` is the period's start from `contracts.rules.periods.budget_period`. `reserved` belongs to requests
    in progress, in addition to `settled`. `overdraft` is usage that could not be charged.
    """

    budget_id: str
    subject: str
    period_start_ns: int
    settled: int
    reserved: int = 0
    overdraft: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What all gateways together have charged, in pico-USD or GPU nanoseconds; `reserved` is in addition to `settled`.

    `overdraft` is usage that could not be charged, and is in addition to `settled` as well.

    `since` is when the oldest included state was written: the maximum age of the sum. `recounted` is the part of
    `settled` that the ledger has added: usage from before the budget's creation, and corrections; `None` if it was not
    determined.
    """

    settled: int = 0
    reserved: int = 0
    since: datetime | None = None
    overdraft: int = 0
    recounted: int | None = None

    @property
    def total(self) -> int:
        """Return the total spending: what the budget was charged, and what it could not be charged."""
        return self.settled + self.overdraft


def publish_states(session: Session, gateway: str, states: Sequence[GatewayState], at: datetime) -> None:
    """Store what a gateway has charged; a later value replaces the earlier one of the same period.

    States of deleted budgets are left out.
    """
    known = _known_budgets(session, {state.budget_id for state in states})
    rows = [
        {
            "budget_id": state.budget_id,
            "period_start": utc_moment(state.period_start_ns),
            "subject": state.subject,
            "gateway": gateway,
            "settled": Decimal(state.settled),
            "reserved": Decimal(state.reserved),
            "overdraft": Decimal(state.overdraft),
            "updated_at": at,
        }
        for state in sorted(states, key=lambda state: (state.budget_id, state.period_start_ns, state.subject))
        if state.budget_id in known
    ]
    for start in range(0, len(rows), _CHUNK_ROWS):
        session.execute(_upsert(session), rows[start : start + _CHUNK_ROWS])


def states_of(session: Session, gateway: str, budget_ids: Iterable[str]) -> list[GatewayState]:
    """Return the states that a gateway has stored, from which it continues after a restart without shared counters."""
    wanted = set(budget_ids)
    rows = session.scalars(select(BudgetState).where(BudgetState.gateway == gateway))
    return [
        GatewayState(
            row.budget_id,
            row.subject,
            unix_ns(row.period_start),
            int(row.settled),
            int(row.reserved),
            int(row.overdraft),
        )
        for row in rows
        if row.budget_id in wanted
    ]


def spent_of(session: Session, budget_id: str, period_start_ns: int) -> dict[str, Spent]:
    """Return what is charged to a budget in the period that started then, by subject: the sum over gateways."""
    rows = session.scalars(
        select(BudgetState).where(
            BudgetState.budget_id == budget_id, BudgetState.period_start == utc_moment(period_start_ns)
        )
    )
    found: dict[str, Spent] = {}
    for row in rows:
        sofar = found.get(row.subject, Spent())
        state = (int(row.settled), int(row.reserved), int(row.overdraft))
        found[row.subject] = with_state(sofar, row.gateway, row.updated_at, *state)
    return found


def with_state(sofar: Spent, gateway: str, updated_at: datetime, settled: int, reserved: int, overdraft: int) -> Spent:
    """Return a sum that includes one more state."""
    return Spent(
        sofar.settled + settled,
        sofar.reserved + reserved,
        since_of(sofar, gateway, updated_at),
        sofar.overdraft + overdraft,
        settled if gateway == RECOUNT else sofar.recounted,
    )


def since_of(sofar: Spent, gateway: str, updated_at: datetime) -> datetime | None:
    """Return the time of the oldest state in a sum with one more state; recounts are ignored."""
    if gateway == RECOUNT:
        return sofar.since
    return updated_at if sofar.since is None else min(sofar.since, updated_at)


def forget_states(session: Session, before: datetime) -> None:
    """Remove the states of periods that started before a time; those of `total` budgets stay."""
    periodic = select(Budget.id).where(Budget.period != "total")
    session.execute(
        delete(BudgetState).where(BudgetState.period_start < before, BudgetState.budget_id.in_(periodic)),
        execution_options={"synchronize_session": False},
    )


def insert_into(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """Return the INSERT of the database's dialect, which unlike SQLAlchemy's generic one supports ON CONFLICT."""
    return (postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert)(table)


def _upsert(session: Session) -> Insert:
    insert: Any = insert_into(session, BudgetState)
    new = {name: insert.excluded[name] for name in ("settled", "reserved", "overdraft", "updated_at")}
    upsert: Insert = insert.on_conflict_do_update(index_elements=_KEY, set_=new)
    return upsert


def _known_budgets(session: Session, ids: set[str]) -> set[str]:
    wanted, known = sorted(ids), set[str]()
    for start in range(0, len(wanted), _CHUNK_ROWS):
        chunk = wanted[start : start + _CHUNK_ROWS]
        known |= set(session.scalars(select(Budget.id).where(Budget.id.in_(chunk))))
    return known
