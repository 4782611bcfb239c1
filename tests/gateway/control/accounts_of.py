"""Accounts that sign in to a control plane under test, and clients with their sessions."""

from typing import Any

from fastapi.testclient import TestClient

PASSWORD = "correct horse battery"


def sign_in_as(owner: TestClient, email: str, role: str, tenant: str | None = None, team: str | None = None) -> Any:
    """Create an account and give its row, and a client with a session of it."""
    body = {"email": email, "name": email.partition("@")[0].title(), "role": role, "tenant": tenant, "team": team}
    made = owner.post("/v1/accounts", json={**body, "password": PASSWORD})
    assert made.status_code == 201, made.text
    begun = owner.post("/sign-in", json={"email": email, "password": PASSWORD}, headers={"Authorization": ""})
    assert begun.status_code == 201, begun.text
    return made.json(), bearing(owner, begun.json()["token"])


def bearing(owner: TestClient, secret: str) -> TestClient:
    """Return a client of the owner's control plane with another token."""
    client = TestClient(owner.app, headers={"Authorization": f"Bearer {secret}"})
    client.portal = owner.portal  # else each request would start a thread and an event loop of its own
    return client
