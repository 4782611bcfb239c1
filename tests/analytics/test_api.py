"""The analytics process's HTTP: who sees what, in pages, and what it says while a database is away."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient

from analytics.app import create_app
from analytics.settings import AnalyticsSettings
from backends.control.admin_tokens import TOKEN_PREFIX, NewToken, create_token
from backends.control.alert_log import settle_alerts
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest, create_key, revoke_key
from backends.control.organisation import create_team, create_tenant
from backends.control.slos import NewSlo, put_slo
from backends.secrets.secret_files import SecretFiles
from contracts.access.identity import Identity
from contracts.access.keys import new_key
from contracts.control import Role
from contracts.errors import ConfigurationError
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import RequestRecord
from contracts.rules.alerts import Finding, Rule

PEPPER = b"pepper"
AUTHOR = Author("test", datetime.now(UTC))


@dataclass
class Api:
    """A running application with the secrets of its askers."""

    client: TestClient
    database: ControlDatabase
    secrets: dict[str, str]

    def get(self, asker: str, path: str, **parameters: object) -> Any:
        headers = {"Authorization": f"Bearer {self.secrets[asker]}"}
        return self.client.get(path, headers=headers, params={k: str(v) for k, v in parameters.items()})

    def post(self, asker: str, path: str, body: object) -> Any:
        return self.client.post(path, headers={"Authorization": f"Bearer {self.secrets[asker]}"}, json=body)


def askers_in(database: ControlDatabase) -> dict[str, str]:
    """Create tenants acme (teams search and sales) and globex, and a token or key of every kind."""
    made = {"nobody": new_key(bytes(32))}
    with database.session() as session:
        for tenant in ("acme", "globex"):
            create_tenant(session, AUTHOR, tenant, tenant)
        for team in ("search", "sales"):
            create_team(session, AUTHOR, "acme", team, team)
        tokens = {
            "acme": NewToken("a", Role.ADMIN, "acme"),
            "lead": NewToken("l", Role.TEAM_LEAD, "acme", "search"),
            "globex": NewToken("g", Role.FINANCE, "globex"),
        }
        for number, (name, new) in enumerate(tokens.items(), 1):
            made[name] = TOKEN_PREFIX + new_key(bytes([number] * 32)).removeprefix("tk-")
            create_token(session, AUTHOR, Role.OWNER, new, made[name], PEPPER)
        keys = {"team key": ("acme", "search"), "plain key": ("acme", ""), "revoked key": ("acme", "search")}
        keys["own key"] = ("acme", "search")
        for number, (name, (tenant, team)) in enumerate(keys.items(), 11):
            made[name] = new_key(bytes([number] * 32))
            wanted = KeyRequest(tenant_id=tenant, team_id=team, name=name, user_id="usr_1" * (name == "own key"))
            key = create_key(session, AUTHOR, wanted, made[name], PEPPER)
            if name == "revoked key":
                revoke_key(session, AUTHOR, tenant, key.id)
    return made


@pytest.fixture(scope="module")
def api(store: Any, migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    data = tmp_path_factory.mktemp("analytics")
    shutil.copy(migrated_sqlite, data / "control.db")
    shutil.copytree(store.data / "secrets", data / "secrets")
    (data / "secrets" / "key_pepper").write_bytes(PEPPER)
    (data / "secrets" / "key_pepper").chmod(0o600)
    owner = SecretFiles(data / "secrets").get_or_create("admin_token", prefix=TOKEN_PREFIX)
    settings = AnalyticsSettings(data=data, store_url=store.url, alerts_evaluate_seconds=3600)
    database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
    secrets = {"owner": owner, **askers_in(database)}
    with database.session() as session:
        for name, tenant in (("all-up", ""), ("acme-up", "acme"), ("globex-up", "globex")):
            put_slo(session, AUTHOR, NewSlo(name, "availability", Decimal(99), tenant=tenant), replaces=False)
        rule = Rule.of("r", "unpriced_usage", "", (), {})
        findings = [Finding("p", "the platform's"), Finding("a", "acme's", tenant="acme")]
        findings += [Finding("t", "search's", tenant="acme", team="search"), Finding("g", "globex's", tenant="globex")]
        settle_alerts(session, [(rule, findings)], AUTHOR.at)
    with TestClient(create_app(settings), client=("127.0.0.1", 50000)) as client:
        yield Api(client, database, secrets)
    database.close()


@pytest.mark.parametrize(
    ("asker", "slos", "alerts"),
    [
        ("owner", ["acme-up", "all-up", "globex-up"], {"the platform's", "acme's", "search's", "globex's"}),
        ("acme", ["acme-up"], {"acme's", "search's"}),
        ("globex", ["globex-up"], {"globex's"}),
        ("lead", ["acme-up"], {"search's"}),
        ("team key", ["acme-up"], {"search's"}),
    ],
)
def test_everyone_sees_their_own(api: Api, asker: str, slos: list[str], alerts: set[str]) -> None:
    assert [row["id"] for row in api.get(asker, "/v1/slos").json()["data"]] == slos
    assert {row["summary"] for row in api.get(asker, "/v1/alerts").json()["data"]} == alerts
    seen = api.get(asker, "/v1/slos/globex-up").status_code
    assert seen == (200 if "globex-up" in slos else 404)


@pytest.mark.parametrize(
    ("asker", "status", "code"),
    [
        ("nobody", 401, "invalid_admin_token"),
        ("revoked key", 401, "invalid_admin_token"),
        ("plain key", 403, "permission_denied"),
    ],
)
def test_who_is_nobody_or_says_not_whose_rows_sees_nothing(api: Api, asker: str, status: int, code: str) -> None:
    for path in ("/v1/slos", "/v1/alerts", "/v1/quality", "/v1/feedback"):
        reply = api.get(asker, path)
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), path
    assert api.client.get("/v1/slos").json()["error"]["code"] == "missing_admin_token"


def test_every_path_but_health_asks_who_is_there(api: Api) -> None:
    paths = api.client.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method in methods:
            reply = api.client.request(method, path.replace("{slo_id}", "x"))
            assert reply.status_code in ((200, 503) if path in ("/health", "/ready") else (401,)), (method, path)


def test_only_feedback_the_books_and_bills_can_be_written(api: Api) -> None:
    paths = api.client.get("/openapi.json").json()["paths"]
    written = {(method, path) for path, methods in paths.items() for method in set(methods) - {"get"}}
    books = ("/v1/books/", "/v1/reconciliation/")
    assert {path for _, path in written if not path.startswith(books)} == {"/v1/feedback"}
    headers = {"Authorization": f"Bearer {api.secrets['acme']}"}
    for method, path in written - {("post", "/v1/feedback")}:  # nobody who is bound to a tenant may change any of them
        body = {"reason": "x", "tenant": "acme", "amount_usd": "1"}
        answer = api.client.request(method, path, headers=headers, json=body)
        assert answer.status_code in (400, 403), (method, path)


def test_lists_come_in_pages(api: Api) -> None:
    first = api.get("owner", "/v1/alerts", limit=3).json()
    assert len(first["data"]) == 3 and first["has_more"]
    rest = api.get("owner", "/v1/alerts", limit=3, after=first["data"][-1]["id"]).json()
    assert len(rest["data"]) == 1 and not rest["has_more"]
    assert api.get("owner", "/v1/slos", limit=2).json()["has_more"]
    refused = api.get("owner", "/v1/slos", limit=0)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "limit"


def test_a_tenant_may_not_ask_about_another(api: Api) -> None:
    assert api.get("acme", "/v1/quality", tenant="globex").status_code == 404
    assert api.get("acme", "/v1/quality", tenant="acme").status_code == 200


def test_feedback_comes_from_applications_on_their_own_requests(
    api: Api, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    at_ns = int(datetime.now(UTC).timestamp()) * 10**9
    made = RequestRecord(
        request_id=uuid7(at_ns).bytes,
        started_at_ns=at_ns,
        duration_ns=1,
        who=Identity("acme", "sales"),
        model=f"model-{uuid4()}",
        usage=Usage(output_text=1),
    )
    record([made])
    body = {"request_id": str(UUID(bytes=made.request_id)), "score": 1}
    assert api.post("plain key", "/v1/feedback", body).json()["source"] == "user"
    assert api.post("acme", "/v1/feedback", body).json()["source"] == "person"
    assert api.post("team key", "/v1/feedback", body).status_code == 404, "it is another team's request"
    assert api.post("globex", "/v1/feedback", body).status_code == 404
    for wrong in ({"score": 2}, {"score": "much"}, {"request_id": "x"}, {"mood": 1}):
        assert api.post("acme", "/v1/feedback", body | wrong).status_code == 400
    rows = api.get("acme", "/v1/feedback").json()["data"]
    assert sum(row["scores"] for row in rows if row["model"] == made.model) == 2
    assert all(row["model"] != made.model for row in api.get("lead", "/v1/feedback").json()["data"])


def test_costs_are_held_to_who_asks(api: Api, record: Callable[[Sequence[RequestRecord]], None]) -> None:
    model = f"model-{uuid4()}"
    at_ns = int(datetime.now(UTC).timestamp()) * 10**9 - 60 * 10**9
    record(
        [
            RequestRecord(
                request_id=uuid7(at_ns).bytes,
                started_at_ns=at_ns,
                duration_ns=1,
                who=Identity(tenant, team),
                model=model,
                usage=Usage(output_text=1),
                cost_pico_usd=10**12,
            )
            for tenant, team in (("acme", "search"), ("acme", "sales"), ("globex", ""))
        ]
    )
    begin = datetime.fromtimestamp(at_ns // 10**9 // 60 * 60, UTC)
    asked = {"from": begin.isoformat(), "to": (begin + timedelta(minutes=2)).isoformat(), "by": "tenant,team"}
    asked |= {"model": model}

    def lines(asker: str, **more: object) -> list[tuple[str, str]]:
        found = api.get(asker, "/v1/costs", **asked, **more)
        assert found.status_code == 200, found.text
        return [(line["tenant"], line["team"]) for line in found.json()["levels"][-1]["lines"]]

    everything = [("acme", "sales"), ("acme", "search"), ("globex", "")]
    assert sorted(lines("owner")) == everything
    assert sorted(lines("acme")) == everything[:2]
    assert lines("team key") == lines("lead") == [("acme", "search")]
    assert len(lines("owner", limit=2)) == 2 and len(lines("owner", limit=2, offset=2)) == 1
    for ends in ({"from": "0001-01-01T00:00:00+14:00"}, {"to": "9999-12-31T23:59:59-14:00"}):
        assert api.get("owner", "/v1/costs", **{**asked, **ends}).status_code == 400
    personal = api.get("own key", "/v1/costs", **asked)
    assert personal.status_code == 403 and "cannot read reports" in personal.json()["error"]["message"]
    dated = {**asked, "from": "2026-11-01", "to": "2026-11-30", "tz": "Europe/Berlin"}
    assert api.get("owner", "/v1/costs", **dated).status_code == 200, "dates, as on the command line"
    for wrong in ("2026-11-01T00:00:00", "yesterday"):
        refused = api.get("owner", "/v1/costs", **{**asked, "from": wrong})
        assert refused.status_code == 400 and "such as 2026-11-01" in refused.json()["error"]["message"]
    assert api.get("lead", "/v1/costs", **asked, team="sales").status_code == 404
    assert api.get("globex", "/v1/costs", **asked, tenant="acme").status_code == 404
    assert api.get("acme", "/v1/gpu/ledger", **asked).status_code == 403
    assert api.get("owner", "/v1/gpu/ledger", **asked).status_code == 200


def test_it_is_ready_with_both_databases_and_says_how_the_last_look_went(api: Api) -> None:
    assert api.client.get("/healthz").json() == {"status": "ok"}
    state = api.client.get("/ready")
    assert state.status_code == 200 and state.json()["alerts"]["faults"] == {}


def test_without_tables_it_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="python -m migrations"):
        create_app(AnalyticsSettings(data=tmp_path))
