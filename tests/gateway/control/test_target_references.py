"""What the control plane refuses in targets: references to what is not a provider's key, and settings of no use."""

import pytest
from fastapi.testclient import TestClient

from tests.gateway.control.conftest import ON_SQLITE

TARGET = {"id": "t", "kind": "openai_http", "url": "https://m.example/v1"}
TARGETS = "/v1/pools/chat/targets"
FORBIDDEN = (
    "file:/var/lib/tollkeeper/secrets/admin_token",
    "file:/run/secrets/../../etc/passwd",
    "file:/run/secrets/kubernetes.io/serviceaccount/token",
    "file:/proc/self/environ",
    "env:PATH",
    "env:TOLLKEEPER_SEALING_KEYS",
    "env:TOLLKEEPER_DATABASE_URL",
)


@pytest.fixture
def pool(owner: TestClient) -> TestClient:
    assert owner.post("/v1/pools", json={"id": "chat"}).status_code == 201
    return owner


@ON_SQLITE
@pytest.mark.parametrize("reference", FORBIDDEN)
@pytest.mark.parametrize("place", ["key_ref", "headers"])
def test_a_reference_to_what_is_no_provider_key_is_refused(pool: TestClient, place: str, reference: str) -> None:
    fields = {"key_ref": reference} if place == "key_ref" else {"settings": {"headers": {"x-a": reference}}}
    refused = pool.post(TARGETS, json=TARGET | fields)
    error = refused.json()["error"]
    assert refused.status_code == 400, refused.text
    assert error["param"] == ("key_ref" if place == "key_ref" else "settings.headers.x-a")
    assert "TOLLKEEPER_CREDENTIAL_" in error["message"] and "tollkeeper secrets put" in error["message"]
    assert pool.post(TARGETS, json=TARGET).status_code == 201
    assert pool.patch(f"{TARGETS}/t", json=fields).status_code == 400
    assert pool.get(f"{TARGETS}/t").json()["key_ref"] == ""


@pytest.mark.parametrize("name", ["ca_file", "certificate", "key"])
def test_so_are_files_of_tls(pool: TestClient, name: str) -> None:
    tls = {"certificate": "/run/secrets/a.pem", name: "/etc/ssl/private/gateway.key"}
    refused = pool.post(TARGETS, json=TARGET | {"settings": {"tls": tls}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, f"settings.tls.{name}")


@ON_SQLITE
@pytest.mark.parametrize("reference", ["env:TOLLKEEPER_STORE_PASSWORD", "file:/proc/self/environ"])
def test_a_hosted_target_cannot_name_what_no_setting_allows(pool: TestClient, reference: str) -> None:
    hosted = {"id": "h", "kind": "litellm", "model": "anthropic/m"}
    for fields in ({"key_ref": reference}, {"settings": {"credentials": {"azure_ad_token": reference}}}):
        assert pool.post(TARGETS, json=hosted | fields).status_code == 400
    assert pool.post(TARGETS, json=hosted | {"key_ref": "file:/run/keys/anthropic"}).status_code == 201


@pytest.mark.parametrize("reference", ["env:MODEL_API_KEY", "env:TOLLKEEPER_PROVIDER_A", "file:/run/secrets/a/key", ""])
def test_what_the_defaults_allow_is_taken(pool: TestClient, reference: str) -> None:
    assert pool.post(TARGETS, json=TARGET | {"key_ref": reference}).status_code == 201


def test_a_moderation_webhook_is_held_to_the_same(pool: TestClient) -> None:
    for reference in FORBIDDEN:
        asks = {"url": "https://m.example/v1", "on_failure": "fail_closed", "key_ref": reference}
        rules = {"stages": [{"name": "m", "detector": "moderation", "settings": asks}]}
        refused = pool.post("/v1/guardrails", json={"name": "mod", "rules": rules})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "rules"), reference


@ON_SQLITE
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"headers": {"x-a": "one\r\nx-b: two"}}, "line end"),
        ({"headers": {"x-a\r\nx-b": "one"}}, "not a header's name"),
        ({"headers": {"Host": "elsewhere"}}, "the gateway's own"),
        ({"headers": {"Api-Key": "sk-in-clear"}}, "is a credential"),
        ({"headers": {"x-a": 1}}, "headers"),
        ({"timeouts": {"total": 0}}, "total"),
        ({"tls": {"verify": False}}, "always verified"),
        ({"paths": {"rerank": "no slash"}}, "begin with a slash"),
        ({"billing": {"on_error": "twice"}}, "billing"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_settings_that_no_gateway_can_use_are_refused(pool: TestClient, settings: dict, says: str) -> None:
    refused = pool.post(TARGETS, json=TARGET | {"settings": settings})
    assert refused.status_code == 400 and says in refused.json()["error"]["message"], refused.text
    assert "sk-in-clear" not in refused.text and "two" not in refused.text


@ON_SQLITE
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_no_json_are_refused(pool: TestClient, number: str) -> None:
    body = '{"id": "t", "kind": "scripted", "settings": {"script": {"gap_ms": ' + number + "}}}"
    refused = pool.post(TARGETS, content=body, headers={"content-type": "application/json"})
    assert refused.status_code == 400 and "settings contains NaN or Infinity" in refused.json()["error"]["message"]


def test_a_wrong_token_is_not_told_where_the_owners_lies(owner: TestClient) -> None:
    for path in ("/v1/pools", "/openapi.json"):
        assert "secrets/admin_token" not in owner.get(path, headers={"authorization": "Bearer wrong"}).text
