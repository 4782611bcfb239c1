"""Routes over the control plane: made, replaced, explained, kept sound whatever else changes, and read by gateways."""

import pytest
from fastapi.testclient import TestClient

from backends.control.database import ControlDatabase
from backends.control.snapshot import load_snapshot
from contracts.control import Route
from contracts.serving.configuration import Snapshot
from tests.gateway.control.conftest import ON_SQLITE, AsRole

DEMO = "scripted-1"
PLAIN = {"choose": [{"model": DEMO}]}


@pytest.fixture
def serving(owner: TestClient) -> TestClient:
    """A second model, in eu-west-1, beside the demonstration's."""
    assert owner.post("/v1/pools", json={"id": "eu", "region": "eu-west-1"}).status_code == 201
    for target in ("one", "two"):
        assert owner.post("/v1/pools/eu/targets", json={"id": target, "kind": "scripted"}).status_code == 201
    assert owner.post("/v1/models", json={"id": "org/eu", "pool": "eu"}).status_code == 201
    return owner


def snapshot_at(url: str) -> Snapshot:
    database = ControlDatabase(url)
    try:
        with database.session() as session:
            return load_snapshot(session)
    finally:
        database.close()


def error_of(reply) -> tuple[int, str | None, str]:
    error = reply.json()["error"]
    return reply.status_code, error["param"], error["message"]


def test_a_route_is_made_replaced_withdrawn_and_deleted(serving: TestClient, control_database_url: str) -> None:
    rules = {
        "choose": [{"model": DEMO, "weight": 3, "when": {"max_prompt_tokens": 4000}}, {"model": "org/eu"}],
        "fallbacks": [{"model": "org/eu", "label": "last"}],
        "cache": {"mode": "exact", "ttl_seconds": 60},
    }
    made = serving.post("/v1/routes", json={"id": "org/assistant", "rules": rules})
    assert made.status_code == 201, made.text
    shown = serving.get("/v1/routes/org/assistant").json()
    assert shown["rules"]["choose"] == rules["choose"] and shown["is_active"]
    [listed] = serving.get("/v1/routes").json()["data"]
    assert listed == shown
    route = snapshot_at(control_database_url).routes["org/assistant"]
    assert [entry.name for entry in route.entries] == [DEMO, "org/eu", "last"]
    assert route.cache is not None and route.cache.ttl_seconds == 60 and route.created_unix > 0

    before = snapshot_at(control_database_url).revision
    assert serving.patch("/v1/routes/org/assistant", json={"rules": PLAIN}).json()["rules"] == PLAIN
    after = snapshot_at(control_database_url)
    assert after.revision > before and len(after.routes["org/assistant"].entries) == 1

    assert not serving.patch("/v1/routes/org/assistant", json={"is_active": False}).json()["is_active"]
    assert snapshot_at(control_database_url).routes == {}
    assert serving.delete("/v1/routes/org/assistant").json() == {"id": "org/assistant", "deleted": True}
    assert serving.get("/v1/routes/org/assistant").status_code == 404


@ON_SQLITE
@pytest.mark.parametrize(
    ("rules", "status", "param", "words"),
    [
        ({"choose": []}, 400, "rules", "dead end"),
        ({"choose": [{"model": DEMO, "weight": 0}]}, 400, "rules", "weight"),
        ({"choose": [{"model": "gone"}]}, 400, "rules.choose.0.model", "leads to model 'gone'"),
        ({"choose": [{"route": "r"}]}, 400, "rules.choose.0", "comes to a loop: r -> r"),
        (
            {"choose": [{"model": "org/eu"}], "regions": ["mars"]},
            400,
            "rules.choose.0",
            "its targets are in regions eu-",
        ),
        ({"choose": [{"model": DEMO, "when": {"slo_headroom": 7}}]}, 400, "rules.choose.0.when.slo_headroom", "7"),
        ({"choose": [{"model": DEMO}], "colour": 1}, 400, "rules.colour", "not a field"),
        ({"choose": [{"model": DEMO}], "semantic": {"intents": 5}}, 400, "rules", "semantic"),
    ],
)
def test_a_route_that_cannot_stand_is_refused_and_nothing_kept(serving, rules, status, param, words) -> None:
    code, field, message = error_of(serving.post("/v1/routes", json={"id": "r", "rules": rules}))
    assert (code, field) == (status, param) and words in message
    assert serving.get("/v1/routes").json()["data"] == []


def test_names_of_models_and_routes_are_one_list(serving: TestClient) -> None:
    assert error_of(serving.post("/v1/routes", json={"id": DEMO, "rules": PLAIN}))[0] == 409
    assert serving.post("/v1/routes", json={"id": "r", "rules": PLAIN}).status_code == 201
    assert error_of(serving.post("/v1/routes", json={"id": "r", "rules": PLAIN}))[0] == 409
    assert error_of(serving.post("/v1/models", json={"id": "r", "pool": "eu"}))[0] == 409


def test_what_a_route_leads_to_is_not_taken_away_under_it(serving: TestClient) -> None:
    pinned = {"choose": [{"model": "org/eu"}], "regions": ["eu-west-1"]}
    assert serving.post("/v1/routes", json={"id": "r", "rules": pinned}).status_code == 201
    assert serving.post("/v1/routes", json={"id": "to-r", "rules": {"choose": [{"route": "r"}]}}).status_code == 201
    for taken in (
        serving.delete("/v1/models/org/eu"),
        serving.patch("/v1/models/org/eu", json={"is_active": False}),
        serving.delete("/v1/routes/r"),
        serving.patch("/v1/routes/r", json={"is_active": False}),
    ):
        assert taken.status_code in (400, 409) and "leads to" in taken.json()["error"]["message"]
    assert serving.delete("/v1/pools/eu/targets/one").status_code == 200  # another is left
    loop = {"rules": {"choose": [{"route": "to-r"}]}}
    assert "comes to a loop" in error_of(serving.patch("/v1/routes/r", json=loop))[2]
    assert serving.delete("/v1/routes/to-r").status_code == 200 and serving.delete("/v1/routes/r").status_code == 200
    assert serving.delete("/v1/models/org/eu").status_code == 200


def test_a_row_that_somebody_wrote_around_us_is_left_out_and_named(serving, as_role, control_database_url) -> None:
    assert serving.post("/v1/routes", json={"id": "good", "rules": PLAIN}).status_code == 201
    database = ControlDatabase(control_database_url)
    with database.session() as session:
        good = session.get(Route, "good")
        assert good is not None
        for name, rules in (("lost", {"choose": [{"model": "x"}]}), ("odd", {"choose": 5}), ("to", leads("lost"))):
            session.add(Route(id=name, rules=rules, is_active=True, created_at=good.created_at))
    database.close()
    snapshot = snapshot_at(control_database_url)
    assert list(snapshot.routes) == ["good"]
    faults = " ".join(snapshot.misconfigured)
    assert all(f"route '{name}' is left out" in faults for name in ("lost", "odd", "to"))
    assert as_role("admin", "acme").get("/v1/routes/odd").json()["rules"] == {"choose": []}
    # And such rows keep nobody from changing sound ones.
    assert serving.patch("/v1/routes/good", json={"rules": PLAIN}).status_code == 200


def leads(route: str) -> dict[str, object]:
    return {"choose": [{"route": route}]}


def test_who_is_bound_to_a_tenant_sees_what_holds_for_it_and_no_other_name(
    serving: TestClient, as_role: AsRole
) -> None:
    everybodys = {"model": DEMO, "when": {"max_prompt_tokens": 100}}
    rules = {
        "choose": [
            {"model": "org/eu", "label": "globex's", "when": {"tenants": ["globex"]}},
            {"model": "org/eu", "weight": 2, "when": {"tenants": ["globex", "acme"]}},
            everybodys,
        ],
        "fallbacks": [
            {"model": DEMO, "label": "globex's last", "when": {"tenants": ["globex"]}},
            {"model": DEMO, "label": "last"},
        ],
    }
    assert serving.post("/v1/routes", json={"id": "org/r", "rules": rules}).status_code == 201
    for bound in (as_role("admin", "acme"), as_role("team_lead", "acme", "search")):
        shown = bound.get("/v1/routes/org/r").json()
        assert shown["rules"] == {
            "choose": [{"model": "org/eu", "weight": 2, "when": {"tenants": ["acme"]}}, everybodys],
            "fallbacks": [{"model": DEMO, "label": "last"}],
        }
        assert bound.get("/v1/routes").json()["data"] == [shown]
    assert as_role("admin").get("/v1/routes/org/r").json()["rules"] == rules


def test_a_route_explains_where_it_would_lead(serving: TestClient) -> None:
    rules = {
        "choose": [{"model": "org/eu", "weight": 3, "when": {"tags": {"tier": "gold"}}}, {"model": DEMO}],
        "fallbacks": [{"model": DEMO, "label": "last"}],
    }
    assert serving.post("/v1/routes", json={"id": "org/r", "rules": rules}).status_code == 201
    told = serving.post("/v1/routes/org/r/explain", json={"tags": {"tier": "gold"}})
    assert told.status_code == 200, told.text
    assert [leg["model"] for leg in told.json()["order"]] == ["org/eu", DEMO]
    assert told.json()["order"][0]["targets"] == ["one", "two"]
    assert [entry["share"] for entry in told.json()["entries"]] == [0.75, 0.25, None]
    plain = serving.post("/v1/routes/org/r/explain", json={}).json()
    assert [(entry["state"], entry["why"]) for entry in plain["entries"]] == [
        ("skipped", "tag tier=gold is not on the request"),
        ("used", ""),
        ("used", ""),
    ]
    assert error_of(serving.post("/v1/routes/nothing/explain", json={}))[0] == 404
