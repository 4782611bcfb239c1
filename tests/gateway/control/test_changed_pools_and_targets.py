"""Pools and targets that are changed over HTTP: checked as new ones are, audited, and followed by gateways."""

import pytest

from backends.control.snapshot import load_snapshot
from tests.gateway.control.conftest import ON_SQLITE

TARGET = {
    "id": "one",
    "kind": "openai_http",
    "url": "http://127.0.0.1:9/v1",
    "model": "llama",
    "provider": "near",
    "key_ref": "env:NEAR_API_KEY",
    "weight": 3,
    "settings": {"timeouts": {"connect": 2}},
}


@pytest.fixture
def pool(owner):
    assert owner.post("/v1/pools", json={"id": "chat", "region": "eu"}).status_code == 201
    assert owner.post("/v1/pools/chat/targets", json=TARGET).status_code == 201
    assert owner.post("/v1/models", json={"id": "m", "pool": "chat"}).status_code == 201
    return owner


def served(control_database):
    with control_database.session() as session:
        return load_snapshot(session).pools["chat"]


def last_entry(owner):
    return owner.get("/v1/audit", params={"limit": 1}).json()["data"][0]


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"url": "http://127.0.0.1:10/v1"}, {"url": "http://127.0.0.1:10/v1"}),
        ({"weight": 1000}, {"weight": 1000}),
        ({"key_ref": ""}, {"key_ref": ""}),
        ({"provider": "far", "model": "other"}, {"provider": "far", "model": "other"}),
        ({"settings": {}}, {"settings": {}}),
        ({"kind": "scripted"}, {"kind": "scripted"}),
        ({"weight": 3}, {}),
        ({"weight": 4, "url": None}, {"weight": 4}),
    ],
)
def test_a_change_of_a_target_leaves_the_rest_as_it_is(pool, control_database, change, after):
    changed = pool.patch("/v1/pools/chat/targets/one", json=change)
    assert changed.status_code == 200
    assert changed.json() == TARGET | after == pool.get("/v1/pools/chat/targets/one").json()
    (spec,) = served(control_database).targets
    assert {name: getattr(spec, name) for name in after} == after
    entry = last_entry(pool)
    assert (entry["action"], entry["subject"]) == ("target.update", "chat/one")
    assert entry["detail"]["after"] == {name: value for name, value in after.items() if name != "settings"}
    assert entry["detail"].get("settings", []) == (["timeouts"] if "settings" in after else [])


@ON_SQLITE
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, "nothing to change"),
        ({"weight": 0}, "weight"),
        ({"weight": 1001}, "weight"),
        ({"url": ""}, "url"),
        ({"url": "unix:///run/engine.sock"}, "http"),
        ({"url": "http://127.0.0.1:/v1"}, "port"),
        ({"url": "http://127.0.0.1:70000/v1"}, "Port"),
        ({"kind": "engine"}, "engine"),
        ({"kind": "litellm"}, "litellm"),
        ({"kind": "gopher"}, "kind"),
        ({"key_ref": "sk-a-real-key"}, "key_ref"),
        ({"id": "two"}, "id"),
        ({"settings": {str(number): 1 for number in range(51)}}, "settings"),
    ],
)
def test_a_change_that_cannot_stand_is_refused_and_changes_nothing(pool, change, named):
    refused = pool.patch("/v1/pools/chat/targets/one", json=change)
    assert refused.status_code == 400 and named in refused.json()["error"]["message"]
    assert "sk-a-real-key" not in refused.text
    assert pool.get("/v1/pools/chat/targets/one").json() == TARGET
    assert last_entry(pool)["action"] == "model.create"


@pytest.mark.parametrize("path", ["/v1/pools/chat/targets/two", "/v1/pools/none/targets/one"])
def test_a_target_that_is_not_there(pool, path):
    assert pool.patch(path, json={"weight": 2}).status_code == 404
    assert pool.get(path).status_code == 404


def test_a_pools_policy_and_region_are_changed(pool, control_database):
    pool.patch("/v1/pools/chat", json={"queue": {"max_waiting": 3}})
    changed = pool.patch("/v1/pools/chat", json={"policy": "round_robin", "region": "us"})
    assert changed.status_code == 200
    shown = {name: changed.json()[name] for name in ("policy", "region", "queue")}
    assert shown == {"policy": "round_robin", "region": "us", "queue": {"max_waiting": 3}}
    assert (served(control_database).policy, served(control_database).targets[0].region) == ("round_robin", "us")
    assert last_entry(pool)["detail"] == {
        "before": {"policy": "cost", "region": "eu"},
        "after": {"policy": "round_robin", "region": "us"},
    }
    assert pool.patch("/v1/pools/chat", json={"region": ""}).json()["region"] == ""


@ON_SQLITE
@pytest.mark.parametrize("change", [{"policy": "luck"}, {"region": "EU"}, {"id": "other"}, {"policy": None}])
def test_a_pools_change_that_cannot_stand_is_refused(pool, change):
    assert pool.patch("/v1/pools/chat", json=change).status_code == 400
    assert pool.get("/v1/pools/chat").json()["policy"] == "cost"


@pytest.mark.parametrize(
    ("path", "change"),
    [("/v1/pools/chat", {"region": "us"}), ("/v1/pools/chat/targets/one", {"provider": "far"})],
)
def test_a_change_that_a_route_cannot_follow_is_refused(pool, path, change):
    rules = {"choose": [{"model": "m"}], "regions": ["eu"]}
    made = pool.post("/v1/routes", json={"id": "r", "rules": rules})
    assert made.status_code == 201, made.text
    refused = pool.patch(path, json=change)
    if "region" in change:
        assert refused.status_code == 409 and "route" in refused.json()["error"]["message"]
        assert pool.get(path).json()["region"] == "eu"
    else:
        assert refused.status_code == 200


@pytest.mark.parametrize(("role", "tenant"), [("admin", "acme"), ("finance", None)])
def test_only_the_platforms_admins_change_them(pool, as_role, role, tenant):
    client = as_role(role, tenant)
    assert client.patch("/v1/pools/chat/targets/one", json={"weight": 2}).status_code == 403
    assert client.patch("/v1/pools/chat", json={"policy": "cost"}).status_code == 403
