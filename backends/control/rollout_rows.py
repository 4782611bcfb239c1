"""Rollouts as stored in the control database, and the faults of those that no longer match the configuration."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from contracts.control import Rollout
from contracts.errors import ConfigurationError
from contracts.recording.moments import unix_ns
from contracts.serving.rollout_checks import fault_of
from contracts.serving.rollouts import LIVE, RolloutSpec, RolloutState, rollout_rules
from contracts.serving.route_checks import Serving


def spec_of_row(row: Rollout) -> RolloutSpec:
    """Build the rollout in a row. Raises ConfigurationError."""
    return RolloutSpec(
        id=row.id,
        route=row.route,
        incumbent=row.incumbent,
        candidate=row.candidate,
        rules=rollout_rules(row.rules),
        salt=bytes.fromhex(row.salt),
        state=_state(row.state),
        step=row.step,
        term=row.term,
        stepped_at_ns=unix_ns(row.stepped_at),
    )


def rollout_faults(session: Session, serving: Serving) -> dict[str, str]:
    """Return the faults that live rollouts have with this configuration, by rollout."""
    found: dict[str, str] = {}
    for row in session.scalars(select(Rollout).where(Rollout.state.in_(LIVE)).order_by(Rollout.id)):
        try:
            fault = fault_of(spec_of_row(row), serving)
        except ConfigurationError as error:
            fault = error
        if fault is not None:
            found[row.id] = fault.message
    return found


def _state(text: str) -> RolloutState:
    for state in ("running", "paused", "rolled_back", "promoted", "aborted"):
        if state == text:
            return state
    raise ConfigurationError(f"state {text!r} is unknown")
