"""Evaluates all alert rules and opens or resolves alerts. A lease ensures that only one process does so."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from analytics.alerts.explanations import explained
from analytics.alerts.slo_burn import holds_of
from analytics.alerts.sources import AlertInputs, AnomalySource, GpuHours, PriceSource, Projection, Source
from analytics.alerts.wiring import SOURCES
from backends.control.abuse_incidents import list_incidents
from backends.control.alert_log import Settled, forget_alerts, known_levels, open_rules, settle_alerts
from backends.control.alert_rules import LoadedRules, load_rules
from backends.control.budget_events import refusing_budgets
from backends.control.budget_spending import load_spending
from backends.control.database import ControlDatabase
from backends.control.leases import HeldLease, give_back, require_lease, take_lease
from backends.control.provider_bills import list_reconciliations
from backends.control.slos import Hold, load_objectives, write_holds
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError
from contracts.rules.alerts import Finding, Rule, RuleKind
from contracts.rules.periods import forecast

_log = logging.getLogger(__name__)

LEASE: Final = "alert-evaluator"
LEASE_LASTS: Final = timedelta(seconds=90)  # longer than an evaluation, so that the lease does not expire during one
_BUDGETS_SINCE: Final = timedelta(days=70)  # covers this month and the previous one
_FORGOTTEN_AFTER: Final = timedelta(days=400)
_MOST_INCIDENTS: Final = 10_000
_FORGETS_EVERY: Final = timedelta(hours=1)  # slow without an index, and SQLite has one writer


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of an evaluation. `skipped`: by kind, why rules could not be evaluated; their alerts are unchanged."""

    settled: Settled = field(default_factory=Settled)
    skipped: Mapping[str, str] = field(default_factory=dict)


class Evaluator:
    """Evaluates rules. Not thread-safe; `holder` identifies this process in the lease."""

    def __init__(
        self,
        database: ControlDatabase,
        store: StoreClient,
        holder: str,
        *,
        project: Projection = forecast,
        anomalies: AnomalySource | None = None,
        gpu_hours: GpuHours | None = None,
        prices: PriceSource | None = None,
        sources: Mapping[RuleKind, Source] = SOURCES,
    ) -> None:
        self._database = database
        self._store = store
        self._holder = holder
        self._project = project
        self._anomalies = anomalies
        self._gpu_hours = gpu_hours
        self._prices = prices
        self._sources = sources
        self._lease: HeldLease | None = None
        self._forgot_at: datetime | None = None

    def look(self, now: datetime) -> Evaluation | None:
        """Evaluate all rules once; return `None` if another process holds the lease.

        Alerts of rules that could not be evaluated (store unavailable) stay open. Raises ControlUnavailable, and
        Conflict if the lease was lost meanwhile; nothing was changed then.
        """
        with self._database.session() as session:
            self._lease = take_lease(session, LEASE, self._holder, now, LEASE_LASTS)
        if self._lease is None:
            return None
        with self._database.session() as session:  # another session: SQLite's only writer must not wait for the reads
            loaded = load_rules(session)
            look = AlertInputs(
                self._store,
                now,
                load_spending(session, now - _BUDGETS_SINCE),
                load_objectives(session),
                {rule.id: made_at for rule, made_at in loaded.rules},
                self._project,
                self._anomalies,
                self._gpu_hours,
                list_incidents(session, is_open=True, now=now, limit=_MOST_INCIDENTS),
                refusing_budgets(session, now - _BUDGETS_SINCE),
                reconciliations=list_reconciliations(session),
                prices=self._prices,
            )
        for rule_id, fault in loaded.faults.items():
            _log.warning("alert_rule_unreadable", extra={"rule": rule_id, "reason": fault})
        found, skipped = self._find(look, loaded)
        with self._database.session() as session:
            known = known_levels(session)
        found = explained(found, known, self._store, self._database.session, now)
        holds = _holds(look, skipped)
        return self._settle(self._lease, loaded, found, holds, skipped, now)

    def stop(self, now: datetime) -> None:
        """Release the lease, so that another process can take over immediately."""
        if self._lease is not None:
            with self._database.session() as session:
                give_back(session, self._lease, now)

    def _find(
        self, look: AlertInputs, loaded: LoadedRules
    ) -> tuple[list[tuple[Rule, Sequence[Finding]]], dict[str, str]]:
        by_kind: dict[RuleKind, list[Rule]] = {}
        for rule, _ in loaded.rules:
            by_kind.setdefault(rule.kind, []).append(rule)
        found: list[tuple[Rule, Sequence[Finding]]] = []
        skipped: dict[str, str] = {}
        for kind, rules in by_kind.items():
            try:
                findings = self._sources[kind](look, rules)
            except TollkeeperError as error:
                skipped[kind] = error.message
            except Exception as error:  # an unexpected error of one kind must not stop the others
                _log.exception("alert_rules_failed", extra={"kind": kind})
                skipped[kind] = _failed(error)
            else:
                found += [(rule, findings.get(rule.id, ())) for rule in rules]
        return found, skipped

    def _settle(
        self,
        lease: HeldLease,
        loaded: LoadedRules,
        found: Sequence[tuple[Rule, Sequence[Finding]]],
        holds: Sequence[Hold] | None,
        skipped: Mapping[str, str],
        now: datetime,
    ) -> Evaluation:
        with self._database.session() as session:
            require_lease(session, lease, now)
            gone = open_rules(session) - {rule.id for rule, _ in loaded.rules} - set(loaded.faults)
            settled = settle_alerts(session, found, now, gone)
            if holds is not None:
                write_holds(session, holds, now)
            if self._forgot_at is None or abs(now - self._forgot_at) >= _FORGETS_EVERY:
                forget_alerts(session, now - _FORGOTTEN_AFTER)
                self._forgot_at = now
        return Evaluation(settled, dict(skipped))


def _holds(look: AlertInputs, skipped: dict[str, str]) -> list[Hold] | None:
    """Return the holds; `None` (with a note in `skipped`) if they cannot be determined and should stay unchanged."""
    if not any(objective.hooks for objective in look.objectives):
        return []
    try:
        return holds_of(look)
    except TollkeeperError as error:
        skipped["policy_holds"] = error.message
    except Exception as error:  # as above
        _log.exception("policy_holds_failed")
        skipped["policy_holds"] = _failed(error)
    return None


def _failed(error: Exception) -> str:
    return f"failed here ({type(error).__name__}); the log says where"
