"""What changes in the control database is seen by every gateway within a second, also among 5,000 keys."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from backends.control import keys, organisation, serving
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.organisation import TenantChange
from backends.control.serving import NewTarget
from contracts.access.keys import digest_of, new_key
from contracts.control import ApiKey
from contracts.errors import ControlUnavailable
from contracts.serving.configuration import KeyEntry
from gateway.config.database_source import DatabaseSource
from gateway.config.directory import Directory
from gateway.request.clock import Clock

KEYS = 5_000
PEPPER = b"pepper"


def author() -> Author:
    return Author("admin", datetime.now(UTC))


def digest(number: int) -> bytes:
    return digest_of(new_key(number.to_bytes(32, "big")), PEPPER)


def row(number: int, at: datetime) -> dict[str, Any]:
    return {
        "id": f"key_{number:032x}",
        "tenant_id": "acme" if number % 2 else "globex",
        "team_id": "",
        "project_id": "",
        "name": f"key {number}",
        "digest": digest(number).hex(),
        "hint": "hint",
        "is_service_account": False,
        "scopes": {},
        "created_at": at,
    }


@pytest.fixture
async def replicas(control_database: ControlDatabase) -> AsyncIterator[list[Directory]]:
    """Two gateways' directories over a database with 5,000 keys, polling."""
    with control_database.session() as session:
        for tenant in ("acme", "globex"):
            organisation.create_tenant(session, author(), tenant, tenant)
        session.execute(insert(ApiKey), [row(number, author().at) for number in range(KEYS)])
    sources = [DatabaseSource(control_database.url.render_as_string(hide_password=False)) for _ in range(2)]
    directories = [Directory(source, source.load(), Clock(), 60.0, lambda: None) for source in sources]
    polling = [asyncio.create_task(directory.run()) for directory in directories]
    yield directories
    for task in polling:
        task.cancel()
    await asyncio.gather(*polling, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()  # a poll in progress has a connection in its hands
    for source in sources:
        source.close()


async def seen_within_a_second(replicas: list[Directory], is_seen: Callable[[Directory], bool]) -> None:
    async with asyncio.timeout(1.0):
        while not all(map(is_seen, replicas)):
            await asyncio.sleep(0.005)


def entry(directory: Directory, number: int) -> KeyEntry | None:
    return directory.snapshot.keys.get(digest(number))


async def test_a_change_of_a_key_or_its_tenant_reaches_every_replica_within_a_second(
    replicas: list[Directory], control_database: ControlDatabase
) -> None:
    assert all(len(directory.snapshot.keys) == KEYS for directory in replicas)
    end = author().at + timedelta(hours=1)
    untouched = [entry(directory, 5) for directory in replicas]

    with control_database.session() as session:
        keys.revoke_key(session, author(), "acme", f"key_{1:032x}")
    await seen_within_a_second(replicas, lambda directory: entry(directory, 1) is None)

    with control_database.session() as session:
        keys.update_key(session, author(), "acme", f"key_{3:032x}", {"expires_at": end})
    await seen_within_a_second(
        replicas, lambda directory: getattr(entry(directory, 3), "expires_at_ns", None) is not None
    )

    with control_database.session() as session:
        keys.update_key(session, author(), "globex", f"key_{2:032x}", {"endpoints": ["embeddings"]})
    await seen_within_a_second(replicas, lambda directory: getattr(entry(directory, 2), "endpoints", None) is not None)

    with control_database.session() as session:
        organisation.update_tenant(session, author(), "globex", TenantChange(is_active=False))
    await seen_within_a_second(replicas, lambda directory: not directory.snapshot.tenants["globex"].is_active)

    first, second = (directory.snapshot for directory in replicas)
    assert first.keys == second.keys and first.tenants == second.tenants and first.revision == second.revision
    assert [entry(directory, 5) for directory in replicas] == untouched
    assert all(entry(directory, 5) is known for directory, known in zip(replicas, untouched, strict=True))


@pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)
def test_after_the_database_was_away_everything_is_read_again(
    control_database: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DatabaseSource(control_database.url.render_as_string(hide_password=False))
    first = source.load()
    with control_database.session() as session:
        organisation.create_tenant(session, author(), "acme", "Acme")
    with monkeypatch.context() as patched:
        patched.setattr(source._database, "session", lambda: _raise())
        with pytest.raises(ControlUnavailable):
            source.poll(first.revision)
    with control_database.session() as session:
        # Another history, as after a restore: the key's row does not say that it is news.
        serving.create_pool(session, author(), "pool")
        serving.create_target(session, author(), "pool", NewTarget("one", "scripted"))
        session.execute(insert(ApiKey), [row(1, author().at)])
    second = source.poll(first.revision)
    assert second is not None and digest(1) in second.keys
    assert source.poll(second.revision) is None
    source._database.close()


def _raise() -> Any:
    raise ControlUnavailable("away")
