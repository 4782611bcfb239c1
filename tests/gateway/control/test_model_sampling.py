"""How models sample, over the control plane: set, shown, taken away, read by gateways, and refused if it is none."""

import pytest
from fastapi.testclient import TestClient

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.control import Model
from contracts.serving.configuration import Snapshot
from contracts.serving.sampling import sampling_policy
from tests.gateway.control.conftest import ON_SQLITE

MODEL = "/v1/models/scripted-1"


@pytest.fixture
def snapshot(control_database_url: str):
    def load() -> Snapshot:
        database = ControlDatabase(control_database_url)
        try:
            with database.session() as session:
                return load_snapshot(session)
        finally:
            database.close()

    return load


def test_a_model_is_made_with_its_sampling_and_served_by_it(owner: TestClient, snapshot) -> None:
    sampling: dict[str, dict[str, object]] = {"defaults": {"temperature": 0.3, "stop": ["x"]}, "pinned": {"seed": 7}}
    made = owner.post("/v1/models", json={"id": "org/m", "pool": "demo", **sampling})
    assert made.status_code == 201, made.text
    shown = owner.get("/v1/models/org/m").json()
    assert {name: shown[name] for name in sampling} == sampling
    assert snapshot().models["org/m"].sampling == sampling_policy(sampling["defaults"], sampling["pinned"])


def test_defaults_and_pinned_values_are_replaced_each_for_itself(owner: TestClient, snapshot) -> None:
    before = snapshot().revision
    assert owner.patch(MODEL, json={"defaults": {"temperature": 0.3, "top_p": 0.5}}).status_code == 200
    changed = owner.patch(MODEL, json={"pinned": {"seed": 1}, "is_active": True}).json()
    assert (changed["defaults"], changed["pinned"]) == ({"temperature": 0.3, "top_p": 0.5}, {"seed": 1})
    owner.patch(MODEL, json={"defaults": {"temperature": 0.4}})
    assert owner.get(MODEL).json()["defaults"] == {"temperature": 0.4}
    assert snapshot().revision > before and snapshot().models["scripted-1"].sampling is not None
    owner.patch(MODEL, json={"defaults": {}, "pinned": {}})
    assert snapshot().models["scripted-1"].sampling is None


def test_a_model_without_sampling_shows_that_it_has_none(owner: TestClient) -> None:
    shown = owner.get(MODEL).json()
    assert (shown["defaults"], shown["pinned"]) == ({}, {})


@ON_SQLITE
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({}, None),
        ({"defaults": {"temperature": 2.5}}, "defaults.temperature"),
        ({"pinned": {"warmth": 1}}, "pinned.warmth"),
        ({"pinned": {"stop": []}}, None),
        ({"defaults": {"seed": 1}, "pinned": {"seed": 1}}, "defaults"),
        ({"pinned": {"temperature": 0}}, "defaults"),
    ],
)
def test_sampling_that_is_none_is_refused_and_changes_nothing(owner: TestClient, snapshot, change, param) -> None:
    owner.patch(MODEL, json={"defaults": {"temperature": 0.5}})
    before = snapshot()
    refused = owner.patch(MODEL, json=change)
    assert refused.status_code == 400, refused.text
    assert param is None or refused.json()["error"]["param"] == param
    assert snapshot().revision == before.revision and owner.get(MODEL).json()["pinned"] == {}


def test_what_changed_stands_in_the_audit_log(owner: TestClient) -> None:
    owner.patch(MODEL, json={"pinned": {"seed": 1}})
    entries = owner.get("/v1/audit").json()["data"]
    assert any(entry["detail"] == {"before": {"pinned": {}}, "after": {"pinned": {"seed": 1}}} for entry in entries)


def test_a_row_whose_sampling_cannot_be_read_is_left_out_and_named(
    owner: TestClient, control_database_url: str, snapshot
) -> None:
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        row = session.get(Model, "scripted-1")
        assert row is not None
        row.settings = {"pinned": {"warmth": 1}}
    database.close()
    found = snapshot()
    assert "scripted-1" not in found.models
    assert any("scripted-1" in fault and "warmth" in fault for fault in found.misconfigured)
