"""Who leaves the control database leaves its alerts as well, and what was told of them."""

import json
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import Any

import pytest
from sqlalchemy import select

from backends.control.alert_log import list_alerts, settle_alerts
from backends.control.alert_rules import create_channel
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.erasure import erase_tenant, erase_user, export_tenant, export_user
from backends.control.organisation import TenantChange, create_tenant, update_tenant
from backends.control.sealer import Sealer
from contracts.control import AlertDelivery
from contracts.rules.alerts import Finding, Rule

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
AUTHOR = Author("test", NOON)
SEALER = Sealer(token_urlsafe(32))


def finding(tenant: str, level: str, subject: str) -> Finding:
    facts = {"level": level, "subject": subject}
    return Finding(f"{tenant}/{level}/{subject}", f"{tenant}'s {level} {subject} spends", tenant=tenant, facts=facts)


@pytest.fixture
def told(control_database: ControlDatabase) -> ControlDatabase:
    """Notices of the platform's rule: one about three, and one about an end user alone."""
    rule = Rule.of("money", "budget_threshold", "", ("ops", "own"), {})
    three = [finding("acme", "user", "bob"), finding("acme", "team", "bob"), finding("globex", "user", "bob")]
    with control_database.session() as session:
        for tenant in ("acme", "globex"):
            create_tenant(session, AUTHOR, tenant, tenant)
        create_channel(session, AUTHOR, "ops", "", "slack", "https://hooks.slack.example/T/B/secret", SEALER)
        create_channel(session, AUTHOR, "own", "acme", "slack", "https://hooks.slack.example/T/B/secret", SEALER)
        settle_alerts(session, [(rule, three)], NOON)
        settle_alerts(session, [(rule, [*three, finding("acme", "user", "eve")])], NOON)
    return control_database


def summaries(database: ControlDatabase) -> tuple[list[str], list[list[str]]]:
    with database.session() as session:
        alerts = sorted(alert.summary for alert in list_alerts(session))
        bodies: list[dict[str, Any]] = [dict(row.body) for row in session.scalars(select(AlertDelivery))]
    return alerts, sorted([alert["summary"] for alert in body["alerts"]] for body in bodies)


def test_an_end_user_leaves_alerts_and_notices_and_a_namesake_stays(told: ControlDatabase) -> None:
    with told.session() as session:
        assert "bob" in json.dumps(dict(export_user(session, "acme", "bob")))
        assert erase_user(session, AUTHOR, "acme", "bob") == 1
        assert erase_user(session, AUTHOR, "acme", "eve") == 1
    left = ["acme's team bob spends", "globex's user bob spends"]
    assert summaries(told) == (left, [left, left])


def test_a_tenant_leaves_the_platform_s_notices(told: ControlDatabase) -> None:
    with told.session() as session:
        update_tenant(session, AUTHOR, "acme", TenantChange(is_active=False))
        erase_tenant(session, AUTHOR, "acme")
    assert summaries(told) == (["globex's user bob spends"], [["globex's user bob spends"]])


def test_a_channel_s_address_is_not_exported_whole(told: ControlDatabase) -> None:
    with told.session() as session:
        tables = dict(export_tenant(session, "acme"))
    assert "https://hooks.slack.example/..." in tables["alert_channels"][0]
    assert "secret" not in json.dumps(tables)
