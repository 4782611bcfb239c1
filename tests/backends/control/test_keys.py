"""Keys over each control database: only digests are kept, and the data plane sees what it should."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control import keys, organisation, serving
from backends.control.changes import Author, read_revision
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest
from backends.control.organisation import TenantChange
from backends.control.serving import NewTarget
from backends.control.snapshot import load_snapshot
from contracts.access.identity import Identity
from contracts.access.keys import digest_of, new_key
from contracts.control import ApiKey, AuditEntry
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.moments import unix_ns

NOW = datetime(2026, 11, 3, 12, 0, 0, 123456, tzinfo=UTC)
AUTHOR = Author(name="admin", at=NOW)
PEPPER = b"pepper"
SECRET = new_key(bytes(range(32)))


@pytest.fixture
def database(control_database: ControlDatabase) -> Iterator[ControlDatabase]:
    with control_database.session() as session:
        organisation.create_tenant(session, AUTHOR, "acme", "Acme")
        organisation.create_team(session, AUTHOR, "acme", "search", "Search")
        organisation.create_project(session, AUTHOR, "acme", "search", "ranking", "Ranking")
        organisation.create_tenant(session, AUTHOR, "globex", "Globex")
        serving.create_pool(session, AUTHOR, "pool")
        serving.create_target(session, AUTHOR, "pool", NewTarget("one", "scripted"))
        serving.create_model(session, AUTHOR, "small", "pool")
    yield control_database


def make(session: Session, wanted: KeyRequest, secret: str = SECRET) -> ApiKey:
    return keys.create_key(session, AUTHOR, wanted, secret, PEPPER)


def test_the_secret_is_nowhere_in_the_database(database: ControlDatabase) -> None:
    with database.session() as session:
        make(session, KeyRequest("acme", "app"))
    with database.session() as session:
        row = session.scalars(select(ApiKey)).one()
        assert row.digest == digest_of(SECRET, PEPPER).hex()
        everything = [str(vars(row))] + [str(vars(entry)) for entry in session.scalars(select(AuditEntry))]
        assert not any(SECRET in text or SECRET[3:-4] in text for text in everything)
        assert row.hint == SECRET[-4:]


def test_a_key_carries_its_payer_and_scopes_to_the_data_plane(database: ControlDatabase) -> None:
    expires_at = NOW + timedelta(days=1)
    wanted = KeyRequest(
        "acme",
        "app",
        team_id="search",
        project_id="ranking",
        expires_at=expires_at,
        models=["small", "small"],
        endpoints=["chat.completions"],
    )
    with database.session() as session:
        key_id = make(session, wanted).id
    with database.session() as session:
        entry = load_snapshot(session).keys[digest_of(SECRET, PEPPER)]
    assert entry.identity == Identity("acme", "search", "ranking", key_id)
    assert entry.models == frozenset({"small"})
    assert entry.endpoints == frozenset({"chat.completions"})
    assert entry.expires_at_ns == unix_ns(expires_at)
    assert entry.revoked_at_ns is None


def test_a_key_without_scopes_may_use_everything(database: ControlDatabase) -> None:
    with database.session() as session:
        make(session, KeyRequest("acme", "app"))
    with database.session() as session:
        entry = load_snapshot(session).keys[digest_of(SECRET, PEPPER)]
    assert (entry.models, entry.endpoints, entry.expires_at_ns) == (None, None, None)


def test_a_revoked_key_leaves_the_snapshot_and_moves_the_revision(database: ControlDatabase) -> None:
    with database.session() as session:
        key_id = make(session, KeyRequest("acme", "app")).id
    with database.session() as session:
        before = load_snapshot(session)
    with database.session() as session:
        keys.revoke_key(session, AUTHOR, "acme", key_id)
    with database.session() as session:
        after = load_snapshot(session)
    assert (len(before.keys), len(after.keys)) == (1, 0)
    assert after.revision == before.revision + 1


def test_revoking_twice_keeps_the_first_moment(database: ControlDatabase) -> None:
    later = Author(name="admin", at=NOW + timedelta(hours=1))
    with database.session() as session:
        key_id = make(session, KeyRequest("acme", "app")).id
        keys.revoke_key(session, AUTHOR, "acme", key_id)
    with database.session() as session:
        assert keys.revoke_key(session, later, "acme", key_id).revoked_at == NOW


def test_keys_of_an_inactive_tenant_leave_the_snapshot_and_return_with_it(database: ControlDatabase) -> None:
    def served() -> int:
        with database.session() as session:
            return len(load_snapshot(session).keys)

    with database.session() as session:
        make(session, KeyRequest("acme", "app"))
        organisation.update_tenant(session, AUTHOR, "acme", TenantChange(is_active=False))
    assert served() == 0
    with database.session() as session:
        organisation.update_tenant(session, AUTHOR, "acme", TenantChange(is_active=True))
    assert served() == 1


def test_an_expired_key_stays_so_that_it_can_be_told_from_an_unknown_one(database: ControlDatabase) -> None:
    with database.session() as session:
        make(session, KeyRequest("acme", "app", expires_at=NOW + timedelta(microseconds=1)))
    with database.session() as session:
        entry = load_snapshot(session).keys[digest_of(SECRET, PEPPER)]
    assert entry.expires_at_ns == unix_ns(NOW) + 1_000


def test_another_tenants_key_can_be_neither_read_nor_revoked(database: ControlDatabase) -> None:
    with database.session() as session:
        key_id = make(session, KeyRequest("acme", "app")).id
    with database.session() as session, pytest.raises(NotFound, match="tenant 'globex' has no key"):
        keys.get_key(session, "globex", key_id)
    with pytest.raises(NotFound), database.session() as session:
        keys.revoke_key(session, AUTHOR, "globex", key_id)
    with database.session() as session:
        assert keys.get_key(session, "acme", key_id).revoked_at is None
        assert keys.list_keys(session, "globex") == []


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        (KeyRequest("nobody", "app"), NotFound, "tenant 'nobody' does not exist"),
        (KeyRequest("acme", "app", team_id="sales"), NotFound, "no team 'sales'"),
        (KeyRequest("acme", "app", team_id="search", project_id="none"), NotFound, "no project 'none'"),
        (KeyRequest("acme", "app", project_id="ranking"), InvalidRequest, "needs its team"),
        (KeyRequest("globex", "app", team_id="search"), NotFound, "tenant 'globex' has no team 'search'"),
        (KeyRequest("acme", "app", models=["large"]), InvalidRequest, "'large', which is neither"),
        (KeyRequest("acme", "app", models=[]), InvalidRequest, "models is empty"),
        (KeyRequest("acme", "app", endpoints=[]), InvalidRequest, "endpoints is empty"),
        (KeyRequest("acme", "app", expires_at=NOW - timedelta(microseconds=1)), InvalidRequest, "which is past"),
        (KeyRequest("acme", "app", expires_at=NOW), InvalidRequest, "which is past"),
    ],
)
def test_a_key_that_could_not_work_is_refused_and_leaves_nothing(
    database: ControlDatabase, wanted: KeyRequest, error: type[Exception], words: str
) -> None:
    with database.session() as session:
        before = read_revision(session)
    with pytest.raises(error, match=words), database.session() as session:
        make(session, wanted)
    with database.session() as session:
        assert read_revision(session) == before
        assert session.scalars(select(ApiKey)).all() == []


def test_a_secret_that_we_did_not_make_is_refused(database: ControlDatabase) -> None:
    with database.session() as session, pytest.raises(InvalidRequest, match="43 URL-safe characters"):
        make(session, KeyRequest("acme", "app"), secret="hunter2")


def test_one_secret_cannot_stand_for_two_keys(database: ControlDatabase) -> None:
    with database.session() as session:
        make(session, KeyRequest("acme", "app"))
    with pytest.raises(Conflict, match="registered already"), database.session() as session:
        make(session, KeyRequest("globex", "app"))


def test_expiry_can_be_set_later_but_not_into_the_past_nor_on_a_revoked_key(database: ControlDatabase) -> None:
    with database.session() as session:
        key_id = make(session, KeyRequest("acme", "app")).id
    end = NOW + timedelta(minutes=5)
    with database.session() as session:
        assert keys.update_key(session, AUTHOR, "acme", key_id, {"expires_at": end}).expires_at == end
    with pytest.raises(InvalidRequest, match="which is past"), database.session() as session:
        keys.update_key(session, AUTHOR, "acme", key_id, {"expires_at": NOW})
    with database.session() as session:
        keys.revoke_key(session, AUTHOR, "acme", key_id)
    with pytest.raises(Conflict, match="was revoked at"), database.session() as session:
        keys.update_key(session, AUTHOR, "acme", key_id, {"expires_at": end})
