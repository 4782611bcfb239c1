"""The rollout board in the control database: gateways exchange measurements every second; one acts for all."""

from datetime import UTC, datetime, timedelta
from typing import Final

from algorithms.rollouts.rollout_tally import RolloutTotals
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.rollout_board import (
    forget_observations,
    incumbent_before,
    others_observed,
    publish_observation,
    raise_rollback_alert,
    shadow_spent,
)
from backends.control.rollouts import advance_rollout, promote_rollout, roll_back
from contracts.errors import Conflict, NotFound
from contracts.serving.rollouts import RolloutSpec
from gateway.routing.rollouts.boards import Shared

_KEPT: Final = timedelta(days=30)  # measurements of gateways that no longer run


class DatabaseBoard:
    """One gateway's access to the board. Calls block, so they run in a thread."""

    can_step = True

    def __init__(self, url: str, gateway: str) -> None:
        self._database = ControlDatabase(url)
        self._gateway = gateway
        self._told: dict[str, str] = {}  # the last reported day, by rollout

    def exchange(self, spec: RolloutSpec, observed: RolloutTotals, day: str, shadow_pico_usd: int) -> Shared:
        """Publish what this gateway measured and return what others did. Raises ControlUnavailable."""
        now, before = datetime.now(UTC), None
        is_first = spec.id not in self._told
        with self._database.session() as session:
            spent = dict(shadow_spent(session, spec.id, day))
            own = spent.pop(self._gateway, 0)
            if is_first:
                before = incumbent_before(session, self._gateway, spec.id)
                forget_observations(session, now - _KEPT)
            publish_observation(
                session,
                self._gateway,
                spec.id,
                spec.term,
                observed,
                shadow_day=day,
                # A new process does not know yet what was spent before it started.
                shadow_pico_usd=shadow_pico_usd if self._told.get(spec.id) == day else max(own, shadow_pico_usd),
                at=now,
            )
            others = others_observed(session, self._gateway, spec.id, spec.term, now)
        self._told[spec.id] = day
        return Shared(others, before, own, list(spent.values()))

    def stopped(self, spec: RolloutSpec) -> str:
        """Return an empty text: gateways do not get rollouts that were rolled back."""
        return ""

    def roll_back(self, spec: RolloutSpec, reason: str) -> None:
        """Roll back to the incumbent, with an audit entry and an alert. Raises ControlUnavailable."""
        author = self._author()
        try:
            with self._database.session() as session:
                row = roll_back(session, author, spec.id, spec.term, reason)
                raise_rollback_alert(session, row, reason, author.at)
        except (Conflict, NotFound):
            return  # another gateway or a person came first

    def go_on(self, spec: RolloutSpec) -> None:
        """Start the next step, or promote the candidate after the last one. Raises ControlUnavailable."""
        author = self._author()
        is_last = spec.step + 1 >= len(spec.rules.steps)
        try:
            with self._database.session() as session:
                if is_last:
                    promote_rollout(session, author, spec.id, "the last step is over", seen_term=spec.term)
                else:
                    advance_rollout(session, author, spec.id, seen_term=spec.term)
        except (Conflict, NotFound):
            return

    def close(self) -> None:
        """Close the database connections."""
        self._database.close()

    def _author(self) -> Author:
        return Author(name=f"gateway {self._gateway}"[:200], at=datetime.now(UTC))
