"""A control plane in this process, and clients of it with tokens of every role."""

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from fastapi.testclient import TestClient

from backends.secrets import passwords
from backends.secrets.secret_files import SecretFiles
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.conftest import PostgresServer

AsRole = Callable[..., TestClient]
# What is refused before anything is written does not depend on the database behind it.
ON_SQLITE = pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True)


@dataclass(frozen=True)
class Founded:
    """A control plane with its tenants made, to be copied: its secrets, and a SQLite file or PostgreSQL's template."""

    secrets: Path
    database: str


@pytest.fixture(scope="session")
def founded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Founded]:
    """Provide `founded(kind)`: tenants acme (teams search and sales) and globex (team search), made once on each."""

    @functools.cache
    def found(kind: str) -> Founded:
        place = tmp_path_factory.mktemp("founded")
        if kind == "postgresql":
            url = request.getfixturevalue("postgres").create_database(template="test_1")
        else:
            shutil.copy(request.getfixturevalue("migrated_sqlite"), place / "control.db")
            url = f"sqlite:///{place / 'control.db'}"
        with client_of(ControlSettings(data=place, database_url=url)) as client:
            for tenant, teams in (("acme", ("search", "sales")), ("globex", ("search",))):
                assert client.post("/v1/tenants", json={"id": tenant, "name": tenant}).status_code == 201
                for team in teams:
                    made = client.post(f"/v1/tenants/{tenant}/teams", json={"id": team, "name": team})
                    assert made.status_code == 201
        return Founded(place / "secrets", url.rpartition("/")[2] if kind == "postgresql" else str(place / "control.db"))

    return found


@pytest.fixture(scope="session")
def own_hasher() -> Iterator[Callable[[], PasswordHasher]]:
    """Hash passwords with little memory meanwhile: a real hash takes a tenth of a second of four cores. Provide what
    makes the real hasher.
    """
    real, quick = passwords._hasher, PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", lambda: quick)
        passwords._nobodys.cache_clear()
        yield real
    passwords._nobodys.cache_clear()


@contextmanager
def client_of(settings: ControlSettings) -> Iterator[TestClient]:
    """Provide the owner's client of a control plane that runs meanwhile."""
    with TestClient(create_app(settings), client=("192.0.2.7", 50000)) as client:
        client.headers["Authorization"] = f"Bearer {SecretFiles(settings.data / 'secrets').get('admin_token')}"
        yield client


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def control_database_url(request: pytest.FixtureRequest, founded: Callable[[str], Founded], tmp_path: Path) -> str:
    """The URL of a control database of the test's own, migrated, and with the owner's tenants where it has an owner."""
    server: PostgresServer | None = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
    if "owner" in request.fixturenames:
        made = founded(request.param)
        shutil.copytree(made.secrets, tmp_path / "secrets")
        shutil.copytree(made.secrets.parent / "audit", tmp_path / "audit")
        template = made.database
    else:
        template = "test_1" if server is not None else str(request.getfixturevalue("migrated_sqlite"))
    if server is not None:
        return server.create_short_lived(template)
    shutil.copy(template, tmp_path / "control.db")
    return f"sqlite:///{tmp_path / 'control.db'}"


@pytest.fixture
def owner(control_database_url: str, own_hasher: Callable[[], PasswordHasher], tmp_path: Path) -> Iterator[TestClient]:
    """The owner's client, with tenants acme (teams search and sales) and globex (team search)."""
    with client_of(ControlSettings(data=tmp_path, database_url=control_database_url)) as client:
        yield client


@pytest.fixture
def as_role(owner: TestClient) -> Iterator[AsRole]:
    """Provide `as_role(role, tenant, team)`: a client with a token just made for that."""
    clients: list[TestClient] = []

    def make(role: str, tenant: str | None = None, team: str | None = None) -> TestClient:
        body = {"name": f"{role}'s token", "role": role, "tenant": tenant, "team": team}
        made = owner.post("/v1/tokens", json=body)
        assert made.status_code == 201, made.text
        client = TestClient(owner.app, client=("192.0.2.8", 50000))
        client.portal = owner.portal  # else each request would start a thread and an event loop of its own
        client.headers["Authorization"] = f"Bearer {made.json()['secret']}"
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
