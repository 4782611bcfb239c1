"""Writes budgets' spending to the control database for other processes."""

from datetime import UTC, datetime, timedelta
from typing import Final

from backends.control.budget_events import PassedThreshold, record_event
from backends.control.budget_states import GatewayState, forget_states, publish_states
from backends.control.database import ControlDatabase
from gateway.limits.budgets.budget_watch import SubjectSpending, ThresholdPassed

_CLEAN_EVERY: Final = timedelta(days=1)
_KEPT_FOR: Final = timedelta(days=400)  # so that a year's periods can be compared with the previous year's


class BudgetPublisher:
    """Writes the spending of one gateway. Calls block, so they run in a thread."""

    def __init__(self, url: str, gateway: str) -> None:
        self._database = ControlDatabase(url)
        self._gateway = gateway
        self._cleaned_at: datetime | None = None

    def publish(self, standings: list[SubjectSpending], passed: list[ThresholdPassed]) -> None:
        """Write spending and passed thresholds. Raises ControlUnavailable."""
        now = datetime.now(UTC)
        states = [
            GatewayState(one.budget, one.subject, one.period_start_ns, one.settled, one.reserved, one.overdraft)
            for one in standings
        ]
        with self._database.session() as session:
            if self._cleaned_at is None or now - self._cleaned_at > _CLEAN_EVERY:
                forget_states(session, now - _KEPT_FOR)
                self._cleaned_at = now
            publish_states(session, self._gateway, states, now)
            for one in passed:
                threshold = PassedThreshold(
                    one.budget, one.subject, one.period_start_ns, one.percent, one.amount, one.spent
                )
                record_event(session, threshold, now)

    def close(self) -> None:
        """Close the database connections."""
        self._database.close()
