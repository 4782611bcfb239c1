"""The control plane's OpenAPI document names the errors that its operations answer."""

import shutil
from pathlib import Path

from fastapi.testclient import TestClient

from backends.secrets.secret_files import SecretFiles
from backends.web.invalid_input import reason_of
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.gateway.control.conftest import ON_SQLITE
from tests.openapi_errors import check_with_schemathesis, operations, served, undocumented


def settings_in(folder: Path, migrated_sqlite: Path) -> ControlSettings:
    shutil.copy(migrated_sqlite, folder / "control.db")
    return ControlSettings(data=folder, database_url=f"sqlite:///{folder / 'control.db'}")


@ON_SQLITE
def test_every_operation_names_its_errors(owner: TestClient) -> None:
    for method, path, operation in operations(owner):
        said = set(operation["responses"])
        assert "422" not in said and {"500", "503"} <= said, (method, path)
        assert ({"401", "403"} <= said) == (path.startswith(("/v1/", "/sign-in"))), (method, path)
        if "requestBody" in operation:
            assert {"400", "413"} <= said, (method, path)
    schemas = owner.get("/openapi.json").json()["components"]["schemas"]
    assert "Error" in schemas and "HTTPValidationError" not in schemas


@ON_SQLITE
def test_every_pattern_of_a_field_has_words(owner: TestClient) -> None:
    found: set[str] = set()
    rest: list[object] = [owner.get("/openapi.json").json()["components"]["schemas"]]
    while rest:
        one = rest.pop()
        if isinstance(one, dict) and isinstance(one.get("pattern"), str):
            found.add(one["pattern"])
        rest += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    refused = {"type": "string_pattern_mismatch", "msg": ""}
    assert [one for one in found if "must match" in reason_of({**refused, "ctx": {"pattern": one}})] == []


@ON_SQLITE
def test_what_bad_requests_are_answered_is_documented(owner: TestClient) -> None:
    assert undocumented(owner) == []


@ON_SQLITE
def test_a_wrong_method_names_the_right_ones(owner: TestClient) -> None:
    reply = owner.put("/v1/tenants", json={})
    assert reply.status_code == 405 and set(reply.headers["allow"].split(", ")) <= {"GET", "POST"}


def test_a_fault_has_an_id_too(migrated_sqlite: Path, tmp_path: Path) -> None:
    app = create_app(settings_in(tmp_path, migrated_sqlite))
    token = SecretFiles(tmp_path / "secrets").get("admin_token")
    with TestClient(app, raise_server_exceptions=False, headers={"authorization": f"Bearer {token}"}) as client:
        database, app.state.database = app.state.database, None
        reply = client.get("/v1/tenants")
        app.state.database = database
    assert reply.status_code == 500 and len(reply.headers.get_list("x-request-id")) == 1
    assert "Traceback" not in reply.text


def test_schemathesis_finds_nothing_undocumented(migrated_sqlite: Path, tmp_path: Path) -> None:
    settings = settings_in(tmp_path, migrated_sqlite)
    with served(create_app(settings)) as url:
        token = SecretFiles(tmp_path / "secrets").get("admin_token") or ""
        check_with_schemathesis(url, token, tmp_path)
