"""Keys that change: scopes, rotation with overlap, and readings that take only what changed yet miss nothing."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, select, text, update
from sqlalchemy.orm import Session

from backends.control import key_entries, keys, organisation, serving
from backends.control.changes import Author, read_revisions
from backends.control.database import ControlDatabase
from backends.control.keys import MAX_OVERLAP_SECONDS, KeyRequest
from backends.control.organisation import TenantChange
from backends.control.serving import NewTarget
from backends.control.snapshot import Reading, read_snapshot
from contracts.access.keys import digest_of, new_key
from contracts.control import ApiKey, AuditEntry, FormerSecret
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.recording.moments import unix_ns
from contracts.serving.configuration import DEFAULT_POLICY, EMPTY_SNAPSHOT, KeyPolicy, Snapshot

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AUTHOR = Author("admin", NOW)
PEPPER = b"pepper"


def secret(number: int) -> str:
    return new_key(number.to_bytes(32, "big"))


def digest(number: int) -> bytes:
    return digest_of(secret(number), PEPPER)


@pytest.fixture
def database(control_database: ControlDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlDatabase]:
    """Tenants acme and globex with four keys each, 0 to 3 and 4 to 7, read in pages of three."""
    monkeypatch.setattr(key_entries, "_PAGE_ROWS", 3)
    with control_database.session() as session:
        serving.create_pool(session, AUTHOR, "pool")
        serving.create_target(session, AUTHOR, "pool", NewTarget("one", "scripted"))
        serving.create_model(session, AUTHOR, "small", "pool")
        for tenant, numbers in (("acme", range(4)), ("globex", range(4, 8))):
            organisation.create_tenant(session, AUTHOR, tenant, tenant)
            for number in numbers:
                make(session, number, tenant_id=tenant)
    yield control_database


def make(session: Session, number: int, **wanted: Any) -> ApiKey:
    request = KeyRequest(**{"tenant_id": "acme", "name": f"key {number}", **wanted})
    return keys.create_key(session, AUTHOR, request, secret(number), PEPPER)


def id_of(session: Session, number: int) -> str:
    found = session.scalar(select(ApiKey.id).where(ApiKey.name == f"key {number}"))
    assert found is not None
    return found


def rotate(session: Session, number: int, new: int, overlap: int, at: datetime = NOW) -> ApiKey:
    author, key_id = replace(AUTHOR, at=at), id_of(session, number)
    return keys.rotate_key(session, author, "acme", key_id, secret=secret(new), pepper=PEPPER, overlap_seconds=overlap)


def read(database: ControlDatabase, last: Reading | None = None) -> Reading:
    with database.session() as session:
        return read_snapshot(session, last)


def compared(reading: Reading) -> Snapshot:
    """Return the snapshot without the price book, which is equal to itself alone."""
    return replace(reading.snapshot, prices=EMPTY_SNAPSHOT.prices)


def served(reading: Reading) -> set[int]:
    return {number for number in range(40) if digest(number) in reading.snapshot.keys}


# --- scopes ---


def test_scopes_reach_the_data_plane_as_a_policy_that_equal_keys_share(database: ControlDatabase) -> None:
    scopes: dict[str, Any] = {
        "addresses": ["2001:DB8:0::/32", "10.0.0.0/8", "192.0.2.7"],
        "priority": "batch",
        "max_reasoning_effort": "low",
        "max_thinking_tokens": 0,
    }
    with database.session() as session:
        made = make(session, 10, **scopes)
        assert made.scopes["addresses"] == ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"]
        make(session, 11, **scopes)
    entries = read(database).snapshot.keys
    first, second = entries[digest(10)], entries[digest(11)]
    assert first.policy == KeyPolicy(("10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"), "batch", "low", 0)
    assert first.policy is second.policy and first.identity.tenant is second.identity.tenant
    assert entries[digest(0)].policy is DEFAULT_POLICY


@pytest.mark.parametrize("network", ["10.0.0.1/8", "10.0.0.0/33", "localhost", "", "10.0.0.0/8,::1"])
def test_what_is_no_network_is_refused(database: ControlDatabase, network: str) -> None:
    with pytest.raises(InvalidRequest, match="which is not a network") as refused, database.session() as session:
        make(session, 10, addresses=["::1", network])
    assert refused.value.param == "addresses"


def test_a_change_sets_what_it_names_and_null_takes_it_away(database: ControlDatabase) -> None:
    with database.session() as session:
        key_id = make(session, 10, priority="batch", models=["small"], expires_at=NOW + timedelta(days=1)).id
        keys.update_key(session, AUTHOR, "acme", key_id, {"priority": None, "max_thinking_tokens": 5})
        key = keys.update_key(session, AUTHOR, "acme", key_id, {"expires_at": None, "name": "renamed"})
        assert (key.scopes, key.expires_at, key.name) == (
            {"models": ["small"], "max_thinking_tokens": 5},
            None,
            "renamed",
        )
        first, second = session.scalars(select(AuditEntry).where(AuditEntry.action == "key.update"))
    assert first.detail == {
        "before": {"priority": "batch", "max_thinking_tokens": None},
        "after": {"priority": None, "max_thinking_tokens": 5},
    }
    assert second.detail["after"] == {"name": "renamed", "expires_at": None}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({}, InvalidRequest, "nothing to change"),
        ({"models": ["large"]}, InvalidRequest, "'large', which is neither"),
        ({"endpoints": []}, InvalidRequest, "endpoints is empty"),
        ({"expires_at": NOW}, InvalidRequest, "which is past"),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(
    database: ControlDatabase, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = read(database)
    with pytest.raises(error, match=words), database.session() as session:
        keys.update_key(session, AUTHOR, "acme", id_of(session, 0), changes)
    assert compared(read(database)) == compared(before)


# --- rotation ---


def test_a_rotated_key_keeps_its_id_and_both_secrets_work_until_the_overlap_ends(database: ControlDatabase) -> None:
    before = read(database).snapshot.keys[digest(0)]
    with database.session() as session:
        rotated = rotate(session, 0, 10, overlap=3600)
        assert (rotated.hint, rotated.rotated_at) == (secret(10)[-4:], NOW)
    entries = read(database).snapshot.keys
    assert entries[digest(10)].identity == entries[digest(0)].identity == before.identity
    assert entries[digest(10)].expires_at_ns is None
    assert entries[digest(0)].expires_at_ns == unix_ns(NOW + timedelta(seconds=3600))


def test_the_former_secret_ends_no_later_than_its_key(database: ControlDatabase) -> None:
    end = NOW + timedelta(seconds=60)
    with database.session() as session:
        make(session, 10, expires_at=end)
        rotate(session, 10, 11, overlap=3600)
    entries = read(database).snapshot.keys
    assert entries[digest(10)].expires_at_ns == entries[digest(11)].expires_at_ns == unix_ns(end)


def test_a_rotation_without_overlap_ends_every_secret_before_it(database: ControlDatabase) -> None:
    with database.session() as session:
        rotate(session, 0, 10, overlap=MAX_OVERLAP_SECONDS)
        rotate(session, 0, 11, overlap=60)
    last = read(database)
    assert last.snapshot.keys[digest(0)].expires_at_ns == unix_ns(NOW + timedelta(seconds=60))
    with database.session() as session:
        rotate(session, 0, 12, overlap=0)
    for reading in (read(database), read(database, last)):
        ends = [reading.snapshot.keys[digest(number)].expires_at_ns for number in (0, 10, 11, 12)]
        assert ends == [unix_ns(NOW)] * 3 + [None]


def test_revoking_a_key_ends_its_former_secrets_too(database: ControlDatabase) -> None:
    with database.session() as session:
        rotate(session, 0, 10, overlap=3600)
    last = read(database)
    with database.session() as session:
        keys.revoke_key(session, AUTHOR, "acme", id_of(session, 0))
    for reading in (read(database), read(database, last)):
        assert served(reading) == set(range(1, 8))


def test_a_key_that_has_ended_is_not_rotated(database: ControlDatabase) -> None:
    with database.session() as session:
        make(session, 10, expires_at=NOW + timedelta(seconds=1))
        keys.revoke_key(session, AUTHOR, "acme", id_of(session, 0))
    with pytest.raises(Conflict, match="expired at"), database.session() as session:
        rotate(session, 10, 11, overlap=0, at=NOW + timedelta(seconds=1))
    with pytest.raises(Conflict, match="was revoked at"), database.session() as session:
        rotate(session, 0, 11, overlap=0)


@pytest.mark.parametrize("overlap", [-1, MAX_OVERLAP_SECONDS + 1])
def test_an_overlap_beyond_its_bounds_is_refused(database: ControlDatabase, overlap: int) -> None:
    with pytest.raises(InvalidRequest, match="overlap_seconds is"), database.session() as session:
        rotate(session, 0, 10, overlap=overlap)


def test_a_secret_that_was_replaced_is_nobody_elses(database: ControlDatabase) -> None:
    with database.session() as session:
        rotate(session, 0, 10, overlap=0)
    for number in (0, 10, 4):
        with pytest.raises(Conflict, match="registered already"), database.session() as session:
            rotate(session, 1, number, overlap=0)
        with pytest.raises(Conflict, match="registered already"), database.session() as session:
            keys.create_key(session, AUTHOR, KeyRequest("acme", "again"), secret(number), PEPPER)


def test_long_ended_secrets_are_forgotten_and_who_missed_their_end_reads_all_keys(database: ControlDatabase) -> None:
    with database.session() as session:
        rotate(session, 0, 10, overlap=0)
        told = read_revisions(session).number
    behind, level = read(database), read(database)
    behind = replace(behind, revisions=replace(behind.revisions, number=told - 1))
    with database.session() as session:
        rotate(session, 1, 11, overlap=0, at=NOW + timedelta(days=1) - timedelta(seconds=1))
        assert len(list(session.scalars(select(FormerSecret)))) == 2
        rotate(session, 2, 12, overlap=0, at=NOW + timedelta(days=1))
        assert read_revisions(session).keys_floor == told
    for last in (None, behind):
        assert digest(0) not in read(database, last).snapshot.keys
    # Who was told keeps the ended entry until all keys are read for another reason: it opens nothing.
    assert read(database, level).snapshot.keys[digest(0)].expires_at_ns == unix_ns(NOW)


# --- readings ---


def change_everything(session: Session) -> None:
    keys.revoke_key(session, AUTHOR, "acme", id_of(session, 0))
    keys.update_key(session, AUTHOR, "acme", id_of(session, 1), {"priority": "interactive"})
    keys.update_key(session, AUTHOR, "acme", id_of(session, 2), {"expires_at": NOW + timedelta(hours=1)})
    rotate(session, 3, 13, overlap=60)
    for number in range(20, 30):
        make(session, number)
    organisation.create_tenant(session, AUTHOR, "initech", "Initech")
    make(session, 31, tenant_id="initech")
    serving.create_model(session, AUTHOR, "large", "pool")


def test_what_changed_and_everything_come_to_the_same(database: ControlDatabase) -> None:
    last = read(database)
    with database.session() as session:
        change_everything(session)
    step, whole = read(database, last), read(database)
    assert compared(step) == compared(whole) and step.revisions == whole.revisions
    assert served(whole) == {1, 2, 3, 13, *range(4, 8), *range(20, 30), 31}
    assert served(last) == set(range(8)), "a reading that was given has changed"
    assert step.snapshot.keys[digest(5)] is last.snapshot.keys[digest(5)]


def test_a_whole_reading_takes_over_what_is_equal(database: ControlDatabase) -> None:
    last = read(database)
    with database.session() as session:
        again = read_snapshot(session, last, is_whole=True)
    assert compared(again) == compared(last)
    assert all(again.snapshot.keys[name] is entry for name, entry in last.snapshot.keys.items())


def test_a_changed_key_is_all_that_is_read(database: ControlDatabase) -> None:
    last = read(database)
    with database.session() as session:
        keys.revoke_key(session, AUTHOR, "acme", id_of(session, 0))
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    step = read(database, last)
    assert not any(table in said for said in statements for table in ("FROM models", "FROM prices", "FROM limits"))
    assert step.snapshot.prices is last.snapshot.prices and step.snapshot.tenants is last.snapshot.tenants
    assert served(step) == set(range(1, 8))


def test_a_tenant_that_returns_brings_its_keys_and_one_that_leaves_is_marked(database: ControlDatabase) -> None:
    def set_active(tenant: str, is_active: bool) -> None:
        with database.session() as session:
            organisation.update_tenant(session, AUTHOR, tenant, TenantChange(is_active=is_active))

    set_active("globex", False)
    first = read(database)
    assert served(first) == set(range(4))
    set_active("acme", False)
    second = read(database, first)
    assert not second.snapshot.tenants["acme"].is_active  # what authentication asks of every key
    set_active("globex", True)
    third = read(database, second)
    assert set(range(4, 8)) <= served(third)
    set_active("acme", True)
    assert served(read(database, third)) == set(range(8))


def test_a_tenant_that_is_gone_takes_its_keys_along(database: ControlDatabase) -> None:
    last = read(database)
    with database.session() as session:
        session.execute(text("DELETE FROM tenants WHERE id = 'globex'"))
        organisation.create_tenant(session, AUTHOR, "initech", "Initech")
    assert served(read(database, last)) == set(range(4))


def test_a_database_restored_from_a_backup_is_read_whole(database: ControlDatabase) -> None:
    with database.session() as session:
        keys.revoke_key(session, AUTHOR, "acme", id_of(session, 0))
    last = read(database)
    with database.session() as session:
        session.execute(update(ApiKey).values(revoked_at=None, changed_revision=0))
        session.execute(text("UPDATE revision SET number = 3"))
    assert served(last) == set(range(1, 8))
    assert served(read(database, last)) == set(range(8))


def test_a_key_that_breaks_is_left_out_and_named_until_it_is_mended(database: ControlDatabase) -> None:
    last = read(database)
    with database.session() as session:
        key = keys.update_key(session, AUTHOR, "acme", id_of(session, 0), {"priority": "batch"})
        key.scopes = {"priority": "royal"}
    broken = read(database, last)
    (fault,) = broken.snapshot.misconfigured
    assert "is left out: scope priority is none of interactive, standard, batch" in fault
    assert served(broken) == set(range(1, 8))
    with database.session() as session:
        make(session, 10)
    still = read(database, broken)
    assert still.snapshot.misconfigured == (fault,)
    with database.session() as session:
        keys.update_key(session, AUTHOR, "acme", id_of(session, 0), {"priority": "batch"})
    mended = read(database, still)
    assert mended.snapshot.misconfigured == () and served(mended) == {*range(8), 10}


def test_a_key_of_another_team_than_the_authors_is_not_found(database: ControlDatabase) -> None:
    lead = Author("lead", NOW, tenant_id="acme", team_id="search")
    with database.session() as session, pytest.raises(NotFound, match="has no key"):
        keys.revoke_key(session, lead, "acme", id_of(session, 0))
