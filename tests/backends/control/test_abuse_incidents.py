"""Incidents of abuse in the control database: written again as they go on, read by tenant and key."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from backends.control.abuse_incidents import (
    forget_incidents,
    get_incident,
    list_incidents,
    of_tenants_that_exist,
    write_incidents,
)
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.erasure import erase_tenant, erase_user, export_tenant
from backends.control.organisation import TenantChange, create_tenant, update_tenant
from contracts.errors import NotFound
from contracts.recording.moments import unix_ns

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def _incident(name: str, tenant: str = "acme", key: str = "key_1", **changes: Any) -> Incident:
    seen = Detection("flood", "alert", 6, 5, 60, facts={"variants": 2})
    return replace(Incident.begun(name, "gw", tenant, "", key, seen, unix_ns(NOON)), **changes)


def test_what_is_newer_takes_the_place_of_what_was_there(control_database: ControlDatabase) -> None:
    first = _incident("a")
    with control_database.session() as session:
        write_incidents(session, [first])
        write_incidents(session, [replace(first, peak=9, sightings=4, is_open=False, facts={"variants": 3})])
    with control_database.session() as session:
        assert get_incident(session, "a", now=NOON) == replace(
            first, peak=9, sightings=4, is_open=False, facts={"variants": 3}
        )


def test_a_tenant_sees_its_own_alone(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        write_incidents(session, [_incident("a"), _incident("b", "zeta"), _incident("c", key="key_2")])
    with control_database.session() as session:
        assert [each.id for each in list_incidents(session, now=NOON)] == ["c", "b", "a"]
        assert [each.id for each in list_incidents(session, tenant="acme", now=NOON)] == ["c", "a"]
        assert [each.id for each in list_incidents(session, key_id="key_2", now=NOON)] == ["c"]
        assert [each.id for each in list_incidents(session, now=NOON, before="c", limit=1)] == ["b"]
        with pytest.raises(NotFound):
            get_incident(session, "b", tenant="acme", now=NOON)


@pytest.mark.parametrize(("after", "is_open"), [(timedelta(minutes=6), True), (timedelta(minutes=6, seconds=1), False)])
def test_one_whose_gateway_is_gone_has_ended(
    after: timedelta, is_open: bool, control_database: ControlDatabase
) -> None:
    with control_database.session() as session:
        write_incidents(session, [_incident("a")])
    with control_database.session() as session:
        assert get_incident(session, "a", now=NOON + after).is_open is is_open
        assert bool(list_incidents(session, is_open=True, now=NOON + after)) is is_open


def test_old_ones_are_forgotten(control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        write_incidents(session, [_incident("a"), _incident("b", last_at_ns=unix_ns(NOON + timedelta(days=1)))])
        forget_incidents(session, NOON + timedelta(hours=1))
    with control_database.session() as session:
        assert [each.id for each in list_incidents(session, now=NOON)] == ["b"]


AUTHOR = Author("test", NOON)


def test_an_erased_end_user_leaves_no_network_or_user_agent_in_the_tenants_incidents(
    control_database: ControlDatabase,
) -> None:
    facts = {"networks": ["192.0.2.0/24"], "user_agents": ["curl/8"], "variants": 2}
    with control_database.session() as session:
        for tenant in ("acme", "zeta"):
            create_tenant(session, AUTHOR, tenant, tenant)
        write_incidents(session, [_incident("a", facts=facts), _incident("b", "zeta", facts=facts)])
    with control_database.session() as session:
        erase_user(session, AUTHOR, "acme", "bob")
    with control_database.session() as session:
        assert get_incident(session, "a", now=NOON).facts == {"variants": 2}
        assert get_incident(session, "b", now=NOON).facts == facts


def test_an_erased_tenant_leaves_its_incidents_and_a_gateway_does_not_bring_them_back(
    control_database: ControlDatabase,
) -> None:
    with control_database.session() as session:
        for tenant in ("acme", "zeta"):
            create_tenant(session, AUTHOR, tenant, tenant)
        write_incidents(session, [_incident("a"), _incident("b", "zeta")])
        assert "abuse_incidents" in dict(export_tenant(session, "acme"))
        update_tenant(session, AUTHOR, "acme", TenantChange(is_active=False))
        erase_tenant(session, AUTHOR, "acme")
    with control_database.session() as session:
        known = of_tenants_that_exist(session, [_incident("a", is_open=False), _incident("b", "zeta")])
        assert [each.id for each in known] == ["b"]
        assert [each.id for each in list_incidents(session, now=NOON)] == ["b"]
