"""How models keep answers, over the control plane: set, shown, taken away, read by gateways."""

from decimal import Decimal

import pytest
from fastapi.testclient import TestClient

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.serving.caching import CachePolicy
from tests.gateway.control.conftest import ON_SQLITE

MODEL = "/v1/models/scripted-1"


@pytest.fixture
def policy(control_database_url: str):
    def load(model: str = "scripted-1") -> CachePolicy | None:
        database = ControlDatabase(control_database_url)
        try:
            with database.session() as session:
                return load_snapshot(session).models[model].cache
        finally:
            database.close()

    return load


def test_a_model_keeps_answers_from_when_it_is_told_until_it_is_told_not_to(owner: TestClient, policy) -> None:
    assert policy() is None and owner.get(MODEL).json()["cache"] == {}
    wanted = {"mode": "semantic", "ttl_seconds": 60, "hit_price": "0.25"}
    changed = owner.patch(MODEL, json={"cache": wanted})
    assert changed.status_code == 200 and changed.json()["cache"]["ttl_seconds"] == 60, changed.text
    assert policy() == CachePolicy(mode="semantic", ttl_seconds=60, hit_price=Decimal("0.25"))
    owner.patch(MODEL, json={"pinned": {"seed": 1}})
    assert policy() is not None
    assert owner.patch(MODEL, json={"cache": None}).json()["cache"] == {} and policy() is None


def test_a_model_is_made_with_its_cache(owner: TestClient, policy) -> None:
    made = owner.post("/v1/models", json={"id": "m", "pool": "demo", "cache": {"share": "user"}})
    assert made.status_code == 201 and policy("m") == CachePolicy(share="user"), made.text


@ON_SQLITE
@pytest.mark.parametrize("cache", [{"mode": "fuzzy"}, {"hit_price": 2}, {"ttl_seconds": 0}, {"warmth": 1}])
def test_a_cache_that_cannot_be_meant_is_refused(owner: TestClient, policy, cache) -> None:
    refused = owner.patch(MODEL, json={"cache": cache})
    assert refused.status_code == 400 and refused.json()["error"]["param"].startswith("cache."), refused.text
    assert policy() is None
