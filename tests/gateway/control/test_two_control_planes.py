"""Two control planes beside each other on one PostgreSQL: both serve, one leads, and the other takes over."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from contracts.control import Lease
from gateway.control.app import create_app
from gateway.control.leadership import LEASE, LEASE_LASTS, Leadership, database_time
from gateway.control.settings import ControlSettings

pytestmark = pytest.mark.service

ON_POSTGRESQL = pytest.mark.parametrize("control_database_url", ["postgresql"], indirect=True)


def plane(folder: Path, url: str, port: int, secrets: Path, sink: str = "") -> TestClient:
    """Return a control plane of its own data directory, with the secrets of the installation."""
    folder.mkdir()
    (folder / "secrets").symlink_to(secrets)
    settings = ControlSettings(data=folder, database_url=url, control_port=port, audit_sink=sink)
    client = TestClient(create_app(settings))
    client.headers["authorization"] = f"Bearer {SecretFiles(secrets).get_or_create('admin_token', prefix='tk-admin-')}"
    return client


@pytest.fixture
def planes(tmp_path: Path, control_database_url: str) -> Iterator[list[TestClient]]:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    opened = [plane(tmp_path / name, control_database_url, port, secrets) for name, port in (("a", 8081), ("b", 8082))]
    with opened[0], opened[1]:
        yield opened


def sound(client: TestClient) -> dict:
    """Return what a plane says of the audit, once it has looked."""
    for _ in range(100):
        found = client.get("/v1/audit/verification", params={"max_age_seconds": 1}).json()
        if not found["is_running"] and (found["is_sound"] is not None or found["problem"]):
            return found
    raise AssertionError("no finding")


@ON_POSTGRESQL
def test_both_serve_and_the_one_that_leads_vouches_for_the_changes_of_both(planes: list[TestClient]):
    first, second = planes
    made = first.post("/v1/tenants", json={"id": "acme", "name": "Acme"})
    assert made.status_code == 201, made.text
    key = second.post("/v1/tenants/acme/keys", json={"name": "shop"})
    assert key.status_code == 201, key.text
    assert second.get("/v1/tenants/acme/keys").json() == first.get("/v1/tenants/acme/keys").json()
    revisions = {client.get("/ready").json()["revision"] for client in planes}
    assert len(revisions) == 1
    found = sound(first)
    assert found["is_sound"] is True, found
    assert "another control plane" in sound(second)["problem"]


@ON_POSTGRESQL
@pytest.mark.parametrize("has_sink", [True, False])
def test_who_leads_next_finds_the_other_s_chain_in_their_sink(
    tmp_path: Path, control_database_url: str, has_sink: bool
):
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    sink = str(tmp_path / "sink") if has_sink else ""
    with plane(tmp_path / "a", control_database_url, 8081, secrets, sink) as first:
        assert first.post("/v1/tenants", json={"id": "acme", "name": "Acme"}).status_code == 201
    with plane(tmp_path / "b", control_database_url, 8082, secrets, sink) as second:
        found = sound(second)
        assert found["is_sound"] is has_sink, found
        assert has_sink or any("is gone" in (place["fault"] or {}).get("what", "") for place in found["places"])


@ON_POSTGRESQL
def test_a_plane_that_is_silent_is_followed_by_the_other_and_never_do_both_lead(control_database_url: str, caplog):
    caplog.set_level("INFO")  # as processes log
    now = [datetime.now(UTC)]
    database = ControlDatabase(control_database_url)
    try:
        began = now[0]
        first, second = (
            Leadership(database, name, lambda session: now[0], lambda: (now[0] - began).total_seconds())
            for name in ("a:8081", "b:8081")
        )
        assert first.look() and not second.look()
        assert [record.holder for record in caplog.records if record.message == "control_plane_leads"] == ["a:8081"]
        now[0] += LEASE_LASTS - timedelta(seconds=1)
        assert first.leads() and not second.look()
        assert first.look()
        now[0] += LEASE_LASTS - timedelta(microseconds=1)
        assert first.leads() and not second.look()
        now[0] += timedelta(microseconds=1)
        assert not first.leads()
        assert second.look() and second.leads()
        assert not first.look() and not first.leads()
        second.give_back()
        assert not second.leads()
        assert first.look()
    finally:
        database.close()


@ON_POSTGRESQL
def test_who_leads_goes_by_the_database_s_clock_whatever_a_plane_s_own_says(control_database_url: str):
    """A plane's clock is behind by minutes, or was set ahead: it takes nobody's lease and loses none."""
    database = ControlDatabase(control_database_url)
    own = [0.0]
    try:
        first, second = (Leadership(database, name, monotonic=lambda: own[0]) for name in ("a:8081", "b:8081"))
        assert first.look() and not second.look()
        with database.session() as session:
            until = session.get_one(Lease, LEASE).expires_at
            assert timedelta() < until - database_time(session) <= LEASE_LASTS
        own[0] = LEASE_LASTS.total_seconds()
        assert not first.leads(), "at the end it leads no more, whether or not the database can be asked"
        assert first.look() and first.leads()
    finally:
        database.close()


def test_a_file_has_one_control_plane_which_leads(tmp_path: Path):
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    assert Leadership(database, "a").leads()
    database.close()
