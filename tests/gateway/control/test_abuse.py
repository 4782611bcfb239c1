"""Incidents over HTTP: who sees which, and how one is explained."""

from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from backends.control.abuse_incidents import write_incidents
from contracts.recording.moments import unix_ns
from tests.gateway.control.conftest import AsRole


@pytest.fixture
def incidents(owner: TestClient) -> TestClient:
    seen = Detection("address_sharing", "throttle", 6, 5, 3600, facts={"networks": ["192.0.2.0/24"]})
    at = unix_ns(datetime.now(UTC))
    with owner.app.state.database.session() as session:  # type: ignore[attr-defined]  # an ASGI app to its stub
        made = [Incident.begun(f"inc-{tenant}", "gw", tenant, "", "key_1", seen, at) for tenant in ("acme", "globex")]
        write_incidents(session, made)
    return owner


def test_they_are_listed_and_explained(incidents: TestClient) -> None:
    page = incidents.get("/v1/abuse?open=true").json()
    assert [each["id"] for each in page["data"]] == ["inc-globex", "inc-acme"]
    assert [each["id"] for each in incidents.get("/v1/abuse?tenant=acme").json()["data"]] == ["inc-acme"]
    explained = incidents.get("/v1/abuse/inc-acme").json()
    assert explained["facts"] == {"networks": ["192.0.2.0/24"]}
    assert explained["explanation"][0] == ("key key_1 of acme: use from 6 addresses in an hour, where 5 are allowed.")
    assert incidents.get("/v1/abuse/inc-none").status_code == 404


def test_a_tenants_admin_sees_its_own_and_a_lead_none(incidents: TestClient, as_role: AsRole) -> None:
    admin = as_role("admin", tenant="acme")
    assert [each["id"] for each in admin.get("/v1/abuse").json()["data"]] == ["inc-acme"]
    assert [each["id"] for each in admin.get("/v1/abuse?tenant=globex").json()["data"]] == ["inc-acme"]
    assert admin.get("/v1/abuse/inc-globex").status_code == 404
    assert as_role("team_lead", tenant="acme", team="search").get("/v1/abuse").status_code == 403
