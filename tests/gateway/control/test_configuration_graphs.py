"""Random graphs of objects: applied, exported and applied again, nothing changes, here and in a second installation."""

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backends.control.database import ControlDatabase
from backends.control.kept_snapshot import SnapshotKeeper
from backends.control.snapshot import load_snapshot
from contracts.serving.configuration import Snapshot
from gateway.control.settings import ControlSettings
from tests.gateway.control.conftest import client_of

Objects = list[dict[str, Any]]
slugs = st.sampled_from(["a", "b-1", "c", "long-name-with-many-parts"])
models = st.sampled_from(["m", "org/model", "m-3.5:latest"])
texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)
usd = st.decimals(min_value=Decimal("0.000001"), max_value=Decimal(1000), places=6).map(
    lambda amount: format(amount, "f")
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return mappings with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


targets = st.lists(slugs, min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(
        *(
            st.fixed_dictionaries(
                {"name": st.just(name), "kind": st.just("scripted")}, optional={"weight": st.integers(1, 1000)}
            )
            for name in names
        )
    ).map(list)
)


@st.composite
def graphs(draw: st.DrawFn) -> Objects:
    """Draw objects that refer to one another: organisation, serving, spending and watching."""
    found: Objects = []

    def add(section: str, **entry: Any) -> None:
        found.append({"section": section, "entry": entry})

    tenants = draw(st.lists(slugs, min_size=1, max_size=3, unique=True))
    teams: list[tuple[str, str]] = []
    for tenant in tenants:
        switches = some(
            name=texts, weight=st.integers(1, 9), keeps_content=st.booleans(), audits_requests=st.booleans()
        )
        add("tenants", id=tenant, **draw(switches))
        for team in draw(st.lists(slugs, max_size=2, unique=True)):
            teams.append((tenant, team))
            add("teams", tenant=tenant, id=team, **draw(some(name=texts | st.just(team))))  # its name may be its id
            for project in draw(st.lists(slugs, max_size=1)):
                add("projects", tenant=tenant, team=team, id=project)
    pools = draw(st.lists(slugs, min_size=1, max_size=3, unique=True))
    for pool in pools:
        queue = some(max_in_flight=st.integers(1, 99), ageing_seconds=st.sampled_from([0.5, 1.0, 30.0]))
        failures = some(retries=st.integers(0, 3), breaker=st.none())
        policy = st.sampled_from(["cost", "random", "peak_ewma"])
        region = st.sampled_from(["", "eu-1"])
        add(
            "pools",
            name=pool,
            targets=draw(targets),
            **draw(some(policy=policy, region=region, queue=queue, failures=failures)),
        )
    units = st.dictionaries(st.sampled_from(["image", "image.hd", "second", "request"]), usd, min_size=1)
    known = draw(st.lists(models, min_size=1, max_size=3, unique=True))
    for name in known:
        sampling = some(temperature=st.sampled_from([0.0, 0.25, 1.0]), seed=st.integers(0, 9))
        cache = some(ttl_seconds=st.integers(1, 600))
        more = some(description=texts, context_tokens=st.integers(1, 10**6), defaults=sampling, cache=cache)
        add("models", name=name, pool=draw(st.sampled_from(pools)), **draw(more))
        for number in range(draw(st.integers(0, 2))):
            span = {} if number else {"valid_to": "2030-01-01T00:00:00Z"}
            begin = {"valid_from": "2030-01-01T00:00:00+00:00"} if number else {}
            rates = st.dictionaries(st.sampled_from(["input_text", "output_text", "cache_read_text"]), usd, min_size=1)
            fee = some(usd_per_request=usd, usd_per_unit=units, region=st.sampled_from(["", "eu-1"]))
            add(
                "prices", model=name, version=f"{name}/{number}", usd_per_mtok=draw(rates), **span, **begin, **draw(fee)
            )
    ways = st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True)
    add("routes", name="front", choose=[{"route": "back"}], fallbacks=[{"model": name} for name in draw(ways)])
    weights = st.integers(1, 9)
    add("routes", name="back", choose=[{"model": name, "weight": draw(weights)} for name in draw(ways)])
    keys: list[tuple[str, str]] = []
    for tenant in tenants:
        for key in draw(st.lists(slugs, max_size=2, unique=True)):
            keys.append((tenant, f"{tenant}-{key}"))
            scopes = some(
                models=st.lists(st.sampled_from(known), min_size=1, unique=True),
                addresses=st.just(["10.0.0.0/8", "192.0.2.7"]),
                priority=st.sampled_from(["batch", "standard", "interactive"]),
                max_thinking_tokens=st.integers(0, 99),
                expires_at=st.just("2031-05-05T00:00:00+02:00"),
                is_service_account=st.booleans(),
            )
            mine = [team for owner, team in teams if owner == tenant]
            has_team = draw(st.booleans()) and bool(mine)
            of_team = {"team": draw(st.sampled_from(mine))} if has_team else {}
            add("keys", tenant=tenant, id=f"{tenant}-{key}", name=f"key {key}", **of_team, **draw(scopes))
    for tenant, key in keys:
        level = draw(st.sampled_from([("key", key), ("key", "*"), ("tenant", ""), ("tag", "feature=*")]))
        about = {"tenant": tenant, "level": level[0], "subject": level[1]}
        if not any(one["entry"].items() >= about.items() for one in found if one["section"] == "limits"):
            add("limits", **about, metric="tokens", window="minute", amount=draw(st.integers(0, 10**9)))
            switches = some(is_hard=st.booleans(), thresholds=st.just([50, 80]), when_unpriced=st.just("allow"))
            channels = draw(some(channels=st.just(["mail"])))
            add("budgets", **about, period="month", amount_usd=draw(usd), **draw(switches), **channels)
    takes = some(
        severities=st.sampled_from([["page"], ["ticket"]]), tenants=st.just([tenants[0]]), report=st.just("week")
    )
    add("alert_channels", id="mail", kind="email", address="ops@example.org", **draw(takes))
    thresholds = st.lists(st.integers(1, 100), min_size=1, max_size=3, unique=True).map(sorted)
    add(
        "alert_rules", id="money", kind="budget_threshold", channels=["mail"], settings={"thresholds": draw(thresholds)}
    )
    target = st.sampled_from(["99", "99.5", "99.90"])
    add(
        "slos",
        id="up",
        indicator="availability",
        target_percent=draw(target),
        **draw(some(model=st.sampled_from(known))),
    )
    order = draw(st.permutations(range(len(found))))
    return [found[number] for number in order]


def put(client: TestClient, objects: Objects, **more: Any) -> dict[str, Any]:
    reply = client.post("/v1/configuration", json={"objects": objects, **more})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def exported(client: TestClient) -> Objects:
    sections = client.get("/v1/configuration").json()["sections"]
    return [{"section": name, "entry": entry} for name, entries in sections.items() for entry in entries]


def kept_and_read(installation: ControlSettings) -> bool:
    """Return whether the snapshot is the same after it was kept on disk, but for objects that compare by identity."""
    database = ControlDatabase(installation.database_address)
    with database.session() as session:
        snapshot = load_snapshot(session)
    database.close()
    keeper = SnapshotKeeper(installation.data / "snapshot", b"secret")
    keeper.keep(snapshot)
    keeper.seen()
    found = keeper.read()
    return found is not None and same(found.snapshot, snapshot)


def same(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots say the same: price books by their cards."""
    fields = [name for name in Snapshot.__dataclass_fields__ if name not in ("prices", "keys")]
    return (
        all(getattr(one, name) == getattr(other, name) for name in fields)
        and dict(one.keys) == dict(other.keys)
        and sorted(map(repr, one.prices.cards)) == sorted(map(repr, other.prices.cards))
    )


@pytest.fixture(scope="module")
def clients(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    yield [migrated_sqlite, tmp_path_factory.mktemp("graphs")]


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # a graph is shrunk for minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(objects=graphs())
def test_applied_exported_and_applied_again_nothing_changes(clients: list[Path], objects: Objects) -> None:
    template, folder = clients
    shutil.rmtree(folder)
    installations = []
    for name in ("first", "second"):
        place = folder / name
        place.mkdir(parents=True)
        shutil.copy(template, place / "control.db")
        installations.append(ControlSettings(data=place, database_url=f"sqlite:///{place / 'control.db'}"))
    with client_of(installations[0]) as client:
        revision = client.get("/v1/configuration").json()
        dry = put(client, objects, dry_run=True)
        assert client.get("/v1/configuration").json() == revision
        assert put(client, objects)["steps"] == dry["steps"]
        assert put(client, objects)["steps"] == []
        document = exported(client)
        assert put(client, document)["steps"] == []
        assert kept_and_read(installations[0]), "a gateway that starts without the database serves by the same"
        everything = sorted({one["section"] for one in document})
        assert put(client, document, prune=everything)["steps"] == []
    with client_of(installations[1]) as client:
        # What an export leaves out is secret: the address of a channel is given again.
        given_again = [one for one in document if one["entry"].get("id") != demo_key(document)]
        for one in given_again:
            if one["section"] == "alert_channels":
                one["entry"] = {**one["entry"], "address": "ops@example.org"}
        put(client, given_again)
        assert put(client, given_again)["steps"] == []
        apart = ("keys", "alert_channels")  # the first key of each installation, and what was given again
        assert [one for one in exported(client) if one["section"] not in apart] == [
            one for one in document if one["section"] not in apart
        ]


def demo_key(document: Objects) -> str:
    keys = [one["entry"] for one in document if one["section"] == "keys"]
    return next(str(key["id"]) for key in keys if key["tenant"] == "demo")
