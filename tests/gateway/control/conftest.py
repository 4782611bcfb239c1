"""A control plane in this process, and clients of it with tokens of every role."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backends.secret_files import SecretFiles
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings

AsRole = Callable[..., TestClient]


@pytest.fixture
def owner(control_database_url: str, tmp_path: Path) -> Iterator[TestClient]:
    """The owner's client, with tenants acme (teams search and sales) and globex (team search)."""
    settings = ControlSettings(data=tmp_path, database_url=control_database_url)
    with TestClient(create_app(settings), client=("192.0.2.7", 50000)) as client:
        client.headers["Authorization"] = f"Bearer {SecretFiles(tmp_path / 'secrets').get('admin_token')}"
        for tenant, teams in (("acme", ("search", "sales")), ("globex", ("search",))):
            assert client.post("/v1/tenants", json={"id": tenant, "name": tenant}).status_code == 201
            for team in teams:
                made = client.post(f"/v1/tenants/{tenant}/teams", json={"id": team, "name": team})
                assert made.status_code == 201
        yield client


@pytest.fixture
def as_role(owner: TestClient) -> Iterator[AsRole]:
    """Give `as_role(role, tenant, team)`: a client with a token just made for that."""
    clients: list[TestClient] = []

    def make(role: str, tenant: str | None = None, team: str | None = None) -> TestClient:
        body = {"name": f"{role}'s token", "role": role, "tenant": tenant, "team": team}
        made = owner.post("/v1/tokens", json=body)
        assert made.status_code == 201, made.text
        client = TestClient(owner.app, client=("192.0.2.8", 50000))
        client.headers["Authorization"] = f"Bearer {made.json()['secret']}"
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()
