"""The control plane's bad-input table: each refused with OpenAI's error shape, naming field, value and limit."""

import logging
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from backends.control.changes import read_revision
from backends.control.database import ControlDatabase
from backends.processes.background_check import BackgroundCheck
from backends.secrets.secret_files import SecretFiles
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings

LIMIT_BYTES = 10_000


@pytest.fixture(scope="module")
def running(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One control plane for all: nothing is done here. What the edge refuses does not depend on the database."""
    data = tmp_path_factory.mktemp("control")
    shutil.copy(migrated_sqlite, data / "control.db")
    settings = ControlSettings(
        data=data, database_url=f"sqlite:///{data / 'control.db'}", control_max_body_bytes=LIMIT_BYTES
    )
    with TestClient(create_app(settings)) as client:
        client.headers["Authorization"] = f"Bearer {SecretFiles(data / 'secrets').get('admin_token')}"
        client.headers["Content-Type"] = "application/json"
        yield client


@pytest.fixture
def client(running: TestClient) -> TestClient:
    client = TestClient(running.app, raise_server_exceptions=False, headers=dict(running.headers))
    client.portal = running.portal
    return client


def error_of(reply: Any) -> dict[str, Any]:
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in reply.text
    error: dict[str, Any] = body["error"]
    return error


PRICE = {"model": "m", "version": "v", "usd_per_mtok": {"input_text": "1"}}
TENANT = {"id": "acme", "name": "Acme"}
KEYS = "/v1/tenants/demo/keys"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param", "words"),
    [
        (
            "POST",
            "/v1/tenants",
            {**TENANT, "id": "Acme Corp"},
            400,
            "id",
            ["'Acme Corp'", "use 1 to 63 of a-z"],
        ),
        ("POST", "/v1/tenants", {**TENANT, "id": "-acme"}, 400, "id", ["'-acme'"]),
        ("POST", "/v1/tenants", {**TENANT, "id": "acme\n"}, 400, "id", ["use 1 to 63 of"]),
        ("POST", "/v1/tenants", {**TENANT, "id": "a" * 64}, 400, "id", ["63"]),
        ("POST", "/v1/tenants", {**TENANT, "id": "demo"}, 409, "id", ["tenant 'demo' exists already"]),
        ("POST", "/v1/tenants", {**TENANT, "name": "x" * 201}, 400, "name", ["200", "201 long"]),
        ("POST", "/v1/tenants", {**TENANT, "name": "   "}, 400, "name", ["at least 1"]),
        ("POST", "/v1/tenants", {**TENANT, "name": "a\x00b"}, 400, "name", ["control characters"]),
        ("POST", "/v1/tenants", {**TENANT, "name": 7}, 400, "name", ["7", "write text"]),
        ("POST", "/v1/tenants", {"id": "acme"}, 400, "name", ["name is missing"]),
        ("POST", "/v1/tenants", {**TENANT, "nmae": "x"}, 400, "nmae", ["not a field"]),
        ("POST", "/v1/tenants", {**TENANT, "weight": 0}, 400, "weight", ["0", "at least 1"]),
        ("POST", "/v1/tenants", {**TENANT, "weight": 1001}, 400, "weight", ["1001", "at most 1000"]),
        ("POST", "/v1/tenants", {**TENANT, "time_zone": "Mars/Base"}, 400, "time_zone", ["Mars/Base", "IANA"]),
        ("POST", "/v1/tenants", {**TENANT, "time_zone": "../../etc/passwd"}, 400, "time_zone", ["IANA"]),
        ("POST", "/v1/tenants", [], 400, "body", ["fields with values"]),
        ("GET", "/v1/tenants/nobody", None, 404, None, ["tenant 'nobody' does not exist"]),
        ("GET", "/v1/tenants?limit=0", None, 400, "limit", ["0", "at least 1"]),
        ("GET", "/v1/tenants?limit=1001", None, 400, "limit", ["1001", "at most 1000"]),
        ("POST", "/v1/tenants/nobody/keys", {"name": "x"}, 404, None, ["tenant 'nobody' does not exist"]),
        ("POST", KEYS, {"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, 400, "expires_at", ["past"]),
        (
            "POST",
            KEYS,
            {"name": "x", "expires_at": "2101-01-01T00:00:00"},
            400,
            "expires_at",
            ["a time with its zone"],
        ),
        ("POST", KEYS, {"name": "x", "models": ["none"]}, 400, "models", ["'none'"]),
        ("POST", KEYS, {"name": "x", "models": []}, 400, "models", ["empty"]),
        ("POST", KEYS, {"name": "x", "project": "p"}, 400, "team", ["needs its team"]),
        ("DELETE", f"{KEYS}/key_none", None, 404, None, ["no key 'key_none'"]),
        ("DELETE", f"{KEYS}/{'k' * 41}", None, 400, "key", ["40"]),
        ("POST", "/v1/tenants/demo/teams/none/projects", TENANT, 404, None, ["no team 'none'"]),
        ("POST", "/v1/prices", {**PRICE, "usd_per_mtok": {"input_text": "-0.1"}}, 400, None, ["-0.1", "at least 0"]),
        ("POST", "/v1/prices", {**PRICE, "usd_per_mtok": {"input_text": "NaN"}}, 400, None, ["finite"]),
        ("POST", "/v1/prices", {**PRICE, "usd_per_mtok": {"input_text": "1e7"}}, 400, None, ["at most 1000000"]),
        ("POST", "/v1/prices", {**PRICE, "usd_per_mtok": {"input_text": "0.0000001"}}, 400, None, ["6"]),
        ("POST", "/v1/prices", {**PRICE, "usd_per_mtok": {"prompt": "1"}}, 400, None, ["prompt"]),
        ("POST", "/v1/prices", {**PRICE, "usd_per_mtok": {}}, 400, None, ["usd_per_mtok or usd_per_unit"]),
        ("POST", "/v1/prices", {**PRICE, "model": "scripted-1"}, 409, "valid_from", ["overlap"]),
        ("POST", "/v1/prices", {**PRICE, "tenant": "nobody"}, 404, None, ["tenant 'nobody'"]),
        (
            "POST",
            "/v1/prices",
            {**PRICE, "valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-01T00:00:00Z"},
            400,
            None,
            ["before it begins"],
        ),
        ("PATCH", "/v1/prices/none/1", {"valid_to": "2026-01-01T00:00:00Z"}, 404, None, ["'none/1'"]),
        ("POST", "/v1/models", {"id": "m", "pool": "none"}, 400, "pool", ["pool 'none' does not exist"]),
        ("POST", "/v1/models", {"id": "scripted-1", "pool": "demo"}, 409, "id", ["exists already"]),
        ("POST", "/v1/models", {"id": "m", "pool": "demo", "context_tokens": -1}, 400, "context_tokens", ["-1"]),
        ("POST", "/v1/pools", {"id": "p", "policy": "telepathy"}, 400, "policy", ["telepathy", "round_robin"]),
        ("POST", "/v1/pools/demo/targets", {"id": "t", "kind": "http"}, 400, "kind", ["'http'", "openai_http"]),
        ("POST", "/v1/pools/demo/targets", {"id": "t", "kind": "openai_http"}, 400, "body", ["needs a url"]),
        ("POST", "/v1/pools/demo/targets", {"id": "t", "kind": "litellm", "model": "x"}, 400, "body", ["provider"]),
        (
            "POST",
            "/v1/pools/demo/targets",
            {"id": "t", "kind": "openai_http", "url": "file:///etc/passwd"},
            400,
            "url",
            ["http://HOST/v1"],
        ),
        (
            "POST",
            "/v1/pools/demo/targets",
            {"id": "t", "kind": "openai_http", "url": "http://h", "key_ref": "sk-secret"},
            400,
            "key_ref",
            ["env:NAME, file:/PATH or stored:NAME"],
        ),
        ("DELETE", "/v1/pools/demo", None, 409, None, ["serves model 'scripted-1'"]),
        ("DELETE", "/v1/pools/demo/targets/scripted", None, 409, None, ["add another target first"]),
        ("GET", "/v2/tenants", None, 404, None, ["/v2/tenants", "/docs"]),
        ("PUT", "/v1/tenants", None, 405, None, ["does not take PUT"]),
    ],
)
def test_bad_input_is_refused_by_name(
    client: TestClient, method: str, path: str, body: object, status: int, param: str | None, words: list[str]
) -> None:
    before = client.get("/ready").json()["revision"]
    reply = client.request(method, path, json=body) if body is not None else client.request(method, path)
    error = error_of(reply)
    assert reply.status_code == status, error
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param
    for word in words:
        assert word in error["message"], error["message"]
    assert client.get("/ready").json()["revision"] == before


def test_malformed_json_is_refused_with_its_position(client: TestClient) -> None:
    reply = client.post("/v1/tenants", content=b'{"id": "acme", "name": }')
    error = error_of(reply)
    assert (reply.status_code, error["code"]) == (400, "malformed_json")
    assert "position 23" in error["message"]


def test_a_body_of_another_content_type_is_told_which_header_is_missing(client: TestClient) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    reply = client.post("/v1/tenants", content=b'{"id": "acme", "name": "Acme"}', headers=form)
    assert reply.status_code == 400
    assert "content-type: application/json" in error_of(reply)["message"]


def test_a_credential_in_the_place_of_its_name_is_not_repeated(client: TestClient) -> None:
    target = {"id": "t", "kind": "openai_http", "url": "http://h", "key_ref": "sk-secret"}
    assert "sk-secret" not in client.post("/v1/pools/demo/targets", json=target).text


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"[" * 9_000, b'{"id": "\\ud800", "name": "x"}'])
def test_bytes_that_are_no_text_are_refused(client: TestClient, content: bytes) -> None:
    reply = client.post("/v1/tenants", content=content)
    assert reply.status_code == 400, reply.text
    error_of(reply)


@pytest.mark.parametrize(("size", "status"), [(LIMIT_BYTES, 400), (LIMIT_BYTES + 1, 413)])
def test_a_body_is_read_up_to_its_limit_and_no_further(client: TestClient, size: int, status: int) -> None:
    reply = client.post("/v1/tenants", content=b"x" * size)
    assert reply.status_code == status
    if status == 413:
        assert error_of(reply)["code"] == "body_too_large"
        assert str(LIMIT_BYTES) in error_of(reply)["message"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_admin_token"),
        ("", "missing_admin_token"),
        ("Basic YTpi", "missing_admin_token"),
        ("Bearer", "missing_admin_token"),
        ("Bearer wrong", "invalid_admin_token"),
        ("Bearer tk-admin-" + "A" * 43, "invalid_admin_token"),
    ],
)
def test_without_the_admin_token_nothing_is_done(client: TestClient, header: str | None, code: str) -> None:
    del client.headers["Authorization"]
    reply = client.post("/v1/tenants", json=TENANT, headers={} if header is None else {"Authorization": header})
    error = error_of(reply)
    assert (reply.status_code, error["type"], error["code"]) == (401, "authentication_error", code)
    assert reply.headers["WWW-Authenticate"] == "Bearer"
    assert "wrong" not in error["message"].replace("the admin token is wrong", "")


@pytest.mark.parametrize("body", [b"{not json", b"\xff", b"x" * (LIMIT_BYTES + 1)])
def test_without_the_admin_token_nothing_of_the_body_is_looked_at(client: TestClient, body: bytes) -> None:
    assert client.post("/v1/tenants", content=body).status_code in (400, 413)
    del client.headers["Authorization"]
    reply = client.post("/v1/tenants", content=body)
    assert (reply.status_code, error_of(reply)["code"]) == (401, "missing_admin_token")
    assert client.post("/v1/no/such/path", content=body).status_code == 401


async def test_without_the_admin_token_the_body_is_not_even_received(client: TestClient) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/tenants", "headers": [(b"authorization", b"Bearer no")]}
    await client.app(scope, receive, send)
    assert sent[0]["status"] == 401


def test_a_database_that_does_not_answer_is_503_and_temporary(client: TestClient) -> None:
    assert isinstance(client.app, FastAPI)
    working = client.app.state.database
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    client.app.state.database = gone = ControlDatabase(f"postgresql://keeper:hidden@127.0.0.1:{port}/control")
    working_check = client.app.state.revision_check

    def revision_of_gone() -> int:
        with gone.session() as session:
            return read_revision(session)

    client.app.state.revision_check = BackgroundCheck("database check", revision_of_gone)
    for path in ("/ready", "/v1/tenants"):
        reply = client.get(path)
        error = error_of(reply)
        assert (reply.status_code, error["code"]) == (503, "control_unavailable")
        assert "hidden" not in error["message"] and "SELECT" not in error["message"]
    assert client.get("/health").status_code == 200
    gone.close()
    client.app.state.database, client.app.state.revision_check = working, working_check
    assert client.get("/ready").status_code == 200


def test_a_crash_is_a_500_without_its_trace_and_the_next_request_is_served(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(_: object) -> None:
        raise RuntimeError("secret detail")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(ControlDatabase, "session", crash)
        reply = client.get("/v1/tenants")
    assert reply.status_code == 500
    assert "secret detail" not in reply.text
    assert error_of(reply)["code"] == "internal_error"
    assert any(record.message == "request_crashed" for record in caplog.records)
    assert client.get("/v1/tenants").status_code == 200
