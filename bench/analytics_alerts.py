"""How long one look at the rules of a thousand tenants takes, five rules each, over a filled store."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final

from analytics.alerts.evaluator import Evaluator
from analytics.anomaly.remembered import RememberedAnomalies
from backends.control.database import ControlDatabase
from backends.store.client import StoreClient
from bench.report import Report
from contracts.control import AlertRule, Budget, BudgetState, Slo, Tenant
from contracts.recording.moments import unix_ns, utc_moment
from contracts.rules.periods import period_bounds
from migrations.database import migrate_database

TENANTS: Final = 1_000
MUST_SECONDS: Final = 2.0
KINDS: Final = ("budget_threshold", "budget_forecast", "spend_anomaly", "slo_burn", "unpriced_usage")
_INDICATORS: Final[tuple[tuple[str, dict[str, str], str], ...]] = (
    ("availability", {}, "99.9"),
    ("ttft", {"ttft": "500"}, "99"),
    ("goodput", {"ttft": "1000", "inter_token": "100"}, "95"),
)


def alert_rows(report: Report, store: StoreClient, now: datetime, filled: int, asked: int) -> None:
    """Look at all rules, the first time, which raises alerts, and then again; `asked` requests are what is bounded.

    Each tenant has a budget that stands at some share of its amount, an objective and a rule of every kind. `filled`
    is how many requests the store holds. The first look writes; the others are what happens all day.
    """
    rounds = 5 if report.quick else 20
    unjudged = "" if filled >= asked else f"{filled:,} requests, where the bound is for {asked:,}"
    with _control_database(now) as database:
        evaluator = Evaluator(database, store, "bench", anomalies=RememberedAnomalies())
        times = []
        for number in range(rounds + 1):
            began = time.perf_counter()
            looked = evaluator.look(now + timedelta(seconds=15 * number))
            times.append(time.perf_counter() - began)
            if looked is None or looked.skipped:
                raise RuntimeError(f"rules were not judged: {looked and looked.skipped}")
            if number == 0 and not looked.settled.opened:
                raise RuntimeError("the first look found nothing, so it measures nothing")
    words = f"s for {TENANTS:,} tenants x {len(KINDS)} rules"
    last = sorted(times[1:])[-(-95 * rounds // 100) - 1]
    report.add("alerts_1000_tenants_p95", last, words, must=MUST_SECONDS, better="lower", n=rounds, unjudged=unjudged)
    report.add("alerts_1000_tenants_first", times[0], f"{words}, raising", must=MUST_SECONDS, better="lower",
               unjudged=unjudged)  # fmt: skip


@contextmanager
def _control_database(now: datetime) -> Iterator[ControlDatabase]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'control.db'}"
        migrate_database(url, say=lambda line: None)
        database = ControlDatabase(url)
        with database.session() as session:
            session.add_all(row for number in range(TENANTS) for row in _rows_of(number, now))
        yield database
        database.close()


def _rows_of(number: int, now: datetime) -> Iterator[Tenant | Budget | BudgetState | Slo | AlertRule]:
    tenant = f"tenant-{number:04}"
    start_ns, _ = period_bounds("month", "UTC", unix_ns(now))
    made = utc_moment(start_ns)
    times = {"created_at": made, "updated_at": made}
    yield Tenant(id=tenant, name=tenant, created_at=made)
    yield Budget(
        id=f"bud_{number}",
        tenant_id=tenant,
        level="tenant",
        subject="",
        model="",
        period="month",
        amount_usd=Decimal(100),
        is_hard=True,
        thresholds=[50, 80, 100],
        when_away="refuse",
        when_unpriced="refuse",
        webhook_url="",
        **times,
    )
    yield BudgetState(
        budget_id=f"bud_{number}",
        period_start=made,
        subject="",
        gateway="gateway-1",
        settled=Decimal(number % 120 * 10**12),
        reserved=Decimal(0),
        updated_at=datetime.now(UTC),
    )
    indicator, thresholds, target = _INDICATORS[number % len(_INDICATORS)]
    yield Slo(
        id=f"slo-{number}",
        tenant_id=tenant,
        model="",
        route="",
        prompt_class="",
        indicator=indicator,
        thresholds_ms=thresholds,
        target_percent=Decimal(target),
        window_days=28,
        min_events=20,
        hooks=["shed_batch"],
        **times,
    )
    for kind in KINDS:
        yield AlertRule(
            id=f"{kind}-{number}", tenant_id=tenant, kind=kind, settings={}, channels=[], is_active=True, **times
        )
