"""What a target of the control database may refer to: provider keys, and nothing else that a gateway could read."""

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.control import keys, organisation, serving
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.keys import KeyRequest
from backends.control.serving import NewTarget
from backends.secrets.credential_references import ReferenceRules
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.conftest import KEY, Running

SECRET = "tk-admin-0123456789"
Ask = Callable[..., Any]


@pytest.fixture
def tmp_path(path_outside_dev: Path) -> Path:
    return path_outside_dev


@pytest.fixture
async def ask_with(migrated_sqlite: Path, tmp_path: Path, upstream: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide `ask_with(target's fields, ...)`: the answer of a gateway whose control database holds such a target."""
    data = tmp_path / "data"
    (data / "provider_keys").mkdir(parents=True)
    shutil.copy(migrated_sqlite, data / "control.db")
    secrets = SecretFiles(data / "secrets")
    secrets.get_or_create("admin_token")
    (data / "secrets" / "admin_token").write_text(SECRET)
    (data / "provider_keys" / "theirs").write_text("sk-theirs")
    (data / "provider_keys" / "link").symlink_to(data / "secrets" / "admin_token")
    (tmp_path / "elsewhere").write_text("sk-elsewhere")
    for name in ("OF_ANOTHER_PROGRAM", "TOLLKEEPER_SEALING_KEYS_OF_TESTS", "SOME_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    running: list[Running] = []

    async def ask(fields: Mapping[str, Any], **settings: Any) -> Any:
        database = ControlDatabase(f"sqlite:///{data / 'control.db'}")
        author = Author("ada", datetime.now(UTC))
        with database.session() as session:
            organisation.create_tenant(session, author, "acme", "Acme")
            pepper = secrets.get_or_create("key_pepper").encode()
            keys.create_key(session, author, KeyRequest(tenant_id="acme", name="k"), KEY, pepper)
            serving.create_pool(session, author, "pool")
            target = {"kind": "openai_http", "url": upstream.url, **fields}
            serving.create_target(session, author, "pool", NewTarget("t1", **target))
            serving.create_model(session, author, "hosted", "pool")
        given: dict[str, Any] = {
            "data": data,
            "database_url": str(database.url),
            "gateway_port": 0,
            "collector_url": "",
        }
        process = Gateway(GatewaySettings(**given, drain_seconds=0.2, **settings))
        await process.start()
        running.append(Running(process))
        database.close()
        upstream.always(upstream.whole(upstream.completion()))
        return await running[0].ask(Running.request(model="hosted"))

    yield ask
    for one in running:
        await one.close()


@pytest.mark.parametrize(
    "reference",
    [
        "file:{data}/secrets/admin_token",
        "file:{data}/provider_keys/../secrets/admin_token",
        "file:{data}/provider_keys/link",
        "file:{data}/control.db",
        "file:/proc/self/environ",
        "file:/proc/self/cwd/pyproject.toml",
        "file:/dev/zero",
        "file:{data}/../elsewhere",
        "env:OF_ANOTHER_PROGRAM",
        "env:TOLLKEEPER_SEALING_KEYS_OF_TESTS",
    ],
)
@pytest.mark.parametrize("place", ["key_ref", "headers"])
@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_row_of_the_database_cannot_send_the_installations_secrets_away(
    reference: str, place: str, is_allowed: bool, ask_with: Ask, upstream: Any, tmp_path: Path
) -> None:
    reference = reference.format(data=tmp_path / "data")
    fields = {"key_ref": reference} if place == "key_ref" else {"settings": {"headers": {"x-any": reference}}}
    settings = {"credential_variables": "TOLLKEEPER_*", "credential_directories": f"{tmp_path}/data, /proc, /dev"}
    answer = await ask_with(fields, **(settings if is_allowed else {}))
    assert answer.status == 502, answer.body
    assert not upstream.requests
    assert b"secrets" not in answer.body and SECRET.encode() not in answer.body


@pytest.mark.parametrize(
    ("reference", "settings", "sent"),
    [
        ("file:{data}/provider_keys/theirs", {}, "sk-theirs"),
        ("env:SOME_API_KEY", {}, SECRET),
        ("file:{data}/../elsewhere", {"credential_directories": "{data}/.."}, "sk-elsewhere"),
        ("env:OF_ANOTHER_PROGRAM", {"credential_variables": "OF_*"}, SECRET),
    ],
)
async def test_what_the_settings_allow_is_sent(
    reference: str, settings: dict[str, str], sent: str, ask_with: Ask, upstream: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    settings = {name: value.format(data=data) for name, value in settings.items()}
    assert (await ask_with({"key_ref": reference.format(data=data)}, **settings)).status == 200
    assert upstream.requests[0].headers["authorization"] == f"bearer {sent}"


async def test_the_files_of_tls_lie_below_the_same_directories(ask_with: Ask, upstream: Any, tmp_path: Path) -> None:
    tls = {"tls": {"ca_file": str(tmp_path / "data" / "secrets" / "admin_token")}}
    answer = await ask_with({"url": "https://127.0.0.1:9", "settings": tls})
    assert answer.status == 502 and not upstream.requests


def test_a_directory_is_absolute_and_patterns_do_not_reach_our_own_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_CREDENTIAL_DIRECTORIES names 'keys'"):
        ReferenceRules.of(tmp_path, "*", "keys")
    rules = ReferenceRules.of(tmp_path, "*", "/")
    for name in ("TOLLKEEPER_PROVIDER_ONE", "TOLLKEEPER_UPSTREAM_KEY", "ANY"):
        rules.check(f"env:{name}")
    for reference in ("env:TOLLKEEPER_STORE_PASSWORD", "env:TOLLKEEPER_PROVIDERS_KEYS", "file:/run/secrets/a\0b"):
        with pytest.raises(ConfigurationError, match="may not name"):
            rules.check(reference)
    with pytest.raises(ConfigurationError, match="may not name"):
        rules.check("file:/run/secrets/kubernetes.io/serviceaccount/token")


@pytest.mark.parametrize("content", ["x" * 65_537, None])
async def test_what_is_no_key_file_is_refused(
    content: str | None, ask_with: Ask, upstream: Any, tmp_path: Path
) -> None:
    place = tmp_path / "data" / "provider_keys" / "odd"
    if content is None:
        os.mkfifo(place)
    else:
        place.write_text(content)
    assert (await ask_with({"key_ref": f"file:{place}"})).status == 502
    assert not upstream.requests
