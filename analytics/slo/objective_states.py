"""Objectives as a comparable value, which is a cache key, and their state, for pages."""

from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from analytics.query_time import QueryTime
from analytics.slo.report import ObjectiveState, slo_report
from backends.control.slos import load_objectives
from backends.store.client import StoreClient
from contracts.rules.objectives import Objective


@dataclass(frozen=True, slots=True)
class ObjectiveList:
    """Objectives, compared by all their fields."""

    objectives: tuple[Objective, ...] = field(compare=False, repr=False)
    known_by: tuple[str, ...]


def objective_list(session: Session, tenant: str | None = None) -> ObjectiveList:
    """Read the objectives of one tenant, or all, from the control database."""
    objectives = tuple(load_objectives(session, tenant=tenant or ""))
    return ObjectiveList(objectives, tuple(repr(each) for each in objectives))


def objective_states(store: StoreClient, promised: ObjectiveList, asked: QueryTime) -> tuple[ObjectiveState, ...]:
    """Return the state of objectives, as `tollkeeper slo report` prints it. Raises StoreUnavailable."""
    return tuple(slo_report(store, promised.objectives, asked.moment))
