"""A thousand tenants at once: each is told of its own once, the platform once of all, also over evaluators that die."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from secrets import token_urlsafe

import pytest
from sqlalchemy import func, select

from analytics.alerts.evaluator import LEASE_LASTS, Evaluator
from backends.control.alert_rules import create_channel
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from contracts.control import Alert, AlertDelivery, AlertRule, AlertSilence, Budget, BudgetState, Tenant
from contracts.recording.moments import unix_ns, utc_moment
from contracts.rules.periods import period_bounds

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
TENANTS = 1_000
OVER = 400  # so many have used 80 % of their budget


@pytest.fixture
def crowd(migrated_sqlite: Path, tmp_path: Path) -> Iterator[ControlDatabase]:
    """On SQLite alone: a thousand of everything is a second's work, and both databases are asked the same elsewhere."""
    start_ns, _ = period_bounds("month", "UTC", unix_ns(NOON))
    start = utc_moment(start_ns)
    times = {"created_at": start, "updated_at": start}
    budget = {"level": "tenant", "subject": "", "model": "", "period": "month", "amount_usd": Decimal(100)}
    words = {"is_hard": True, "thresholds": [80], "when_away": "refuse", "when_unpriced": "refuse", "webhook_url": ""}
    rule = {"kind": "budget_threshold", "settings": {}, "is_active": True, **times}
    database = ControlDatabase(f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'control.db')}")
    with database.session() as session:
        create_channel(
            session, Author("test", NOON), "ops", "", "webhook", "https://ops.example/hook", Sealer(token_urlsafe(32))
        )
        session.add(AlertRule(id="all", tenant_id="", channels=["ops"], **rule))
        for number in range(TENANTS):
            name = f"t-{number:04}"
            used = Decimal((80 if number < OVER else 79) * 10**12)
            session.add(Tenant(id=name, name=name, created_at=start))
            session.add(Budget(id=f"b-{number}", tenant_id=name, **budget, **words, **times))
            session.add(
                BudgetState(
                    budget_id=f"b-{number}",
                    period_start=start,
                    subject="",
                    gateway="g",
                    settled=used,
                    reserved=Decimal(0),
                    updated_at=NOON,
                )
            )
            session.add(AlertRule(id=f"own-{number}", tenant_id=name, channels=["ops"], **rule))
    yield database
    database.close()


def evaluator(database: ControlDatabase, holder: str) -> Evaluator:
    return Evaluator(database, StoreClient(StoreAddress("http://127.0.0.1:1", "tollkeeper", "reader", "")), holder)


def counted(database: ControlDatabase) -> tuple[int, int]:
    with database.session() as session:
        alerts = session.scalar(select(func.count()).select_from(Alert))
        notices = session.scalar(select(func.count()).select_from(AlertDelivery))
    return int(alerts or 0), int(notices or 0)


def test_each_is_told_once_and_no_restart_tells_again(crowd: ControlDatabase) -> None:
    with crowd.session() as session:  # one of those over their budget wants to hear nothing for an hour
        silence = {"id": "sil_1", "tenant_id": "t-0000", "rule_id": "", "subject": "", "comment": ""}
        session.add(AlertSilence(starts_at=NOON, ends_at=NOON + timedelta(hours=1), created_at=NOON, **silence))
    now = NOON
    for number in range(3):  # the first two die with the lease in their hands
        looked = evaluator(crowd, f"holder-{number}").look(now)
        assert looked is not None and looked.skipped == {}
        assert counted(crowd) == (2 * OVER, 1 + OVER - 1), "its own each but the silenced, and one of the platform"
        now += LEASE_LASTS
    with crowd.session() as session:
        told = next(
            row.body for row in session.scalars(select(AlertDelivery)) if row.body["rule"] == "all"
        )  # of all, it lists fifty
    assert (len(told["alerts"]), told["more"], len(told["ids"])) == (50, OVER - 50, OVER)  # type: ignore[arg-type]

    assert evaluator(crowd, "last").look(now + timedelta(hours=1)) is not None
    assert counted(crowd) == (2 * OVER, 1 + OVER), "the silence is over, and it is still so"
