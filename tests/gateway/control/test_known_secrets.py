"""A start with missing or other secrets is refused by a sentence; what is lost for good is replaced by a command."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backends.control.known_secrets import DEPENDS
from backends.control.sealer import KEYS_VARIABLE
from contracts.errors import ConfigurationError
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.control.conftest import client_of
from tollkeeper.cli import app

MADE = sorted(set(DEPENDS) - {"audit_former_keys"})
PROVIDER_KEY = "sk-provider-0123456789"


@pytest.fixture(scope="module")
def founded_data(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("founded")
    shutil.copy(migrated_sqlite, data / "control.db")
    start(data)
    return data


@pytest.fixture
def data(founded_data: Path, tmp_path: Path) -> Path:
    """The data directory of an installation that has run once and is stopped."""
    return Path(shutil.copytree(founded_data, tmp_path / "data"))


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    yield


def start(data: Path) -> None:
    """Start the control plane, change something, stop it."""
    with client_of(ControlSettings(data=data)) as client:
        assert client.put("/v1/stored-keys/openai", json={"value": PROVIDER_KEY}).status_code == 200


def run(data: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data", str(data)], env={"TOLLKEEPER_DATABASE_URL": ""})


def files(data: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (data / "secrets").iterdir()}


def test_a_new_installation_makes_its_secrets_and_starts_again_with_them(data: Path) -> None:
    before = files(data)
    assert set(MADE) <= set(before)
    start(data)
    assert files(data) == before


def test_the_database_has_no_secret(data: Path) -> None:
    with sqlite3.connect(data / "control.db") as database:
        text = "\n".join(database.iterdump())
    assert not [name for name, secret in files(data).items() if secret.strip() in text]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("loss", ["missing", "another"])
def test_a_start_without_the_secrets_of_the_installation_ends_with_a_sentence(data: Path, name: str, loss: str) -> None:
    lost = data / "secrets" / name
    kept = lost.read_text()
    if loss == "missing":
        lost.unlink()
    else:
        lost.write_text(("A" if kept[0] != "A" else "B") + kept[1:])
    before = files(data)
    with pytest.raises(ConfigurationError) as refused:
        create_app(ControlSettings(data=data))
    said = refused.value.message
    assert f"secrets/{name} is {'missing' if loss == 'missing' else 'another one'}" in said
    assert DEPENDS[name] in said and "Put the files back" in said and "tollkeeper secrets accept" in said
    assert files(data) == before, "a start that is refused makes nothing"
    lost.write_text(kept)
    start(data)


def test_every_secret_that_is_missing_is_named_at_once(data: Path) -> None:
    shutil.rmtree(data / "secrets")
    with pytest.raises(ConfigurationError) as refused:
        create_app(ControlSettings(data=data))
    assert all(f"secrets/{name} is missing" in refused.value.message for name in MADE)
    assert not (data / "secrets").exists()


def test_up_starts_nothing_without_the_secrets(data: Path) -> None:
    shutil.rmtree(data / "secrets")
    done = run(data, "up", "--no-dashboard", "--no-engine", "--port-base", "23456")
    assert done.exit_code == 2 and "secrets/key_pepper is missing" in done.stderr
    assert not (data / "secrets").exists() and not (data / "store").exists()


def test_an_installation_of_an_earlier_version_adopts_its_secrets(data: Path) -> None:
    with sqlite3.connect(data / "control.db") as database:
        database.execute("DELETE FROM known_secrets")
    database.close()
    start(data)
    (data / "secrets" / "cache_salt").unlink()
    with pytest.raises(ConfigurationError, match="cache_salt is missing"):
        create_app(ControlSettings(data=data))


def test_an_earlier_versions_rows_need_their_secrets_too(data: Path) -> None:
    with sqlite3.connect(data / "control.db") as database:
        database.execute("DROP TABLE known_secrets")
        database.execute("UPDATE alembic_version SET version_num = '0017'")
    database.close()
    shutil.rmtree(data / "secrets")
    done = run(data, "up", "--no-dashboard", "--no-engine", "--port-base", "23456")
    assert done.exit_code == 2
    assert all(f"secrets/{name} is missing" in done.stderr for name in ("key_pepper", "channel_key"))
    assert "audit_signing_key is missing" in done.stderr


def test_a_gateway_with_another_pepper_does_not_start(data: Path, tmp_path: Path) -> None:
    settings = GatewaySettings(data=tmp_path / "elsewhere", database_url=f"sqlite:///{data / 'control.db'}")
    with pytest.raises(ConfigurationError, match="key_pepper is missing"):
        Gateway(settings)
    assert not (tmp_path / "elsewhere" / "secrets").exists()


def test_a_rotation_of_the_sealing_key_is_known(data: Path) -> None:
    key_file = data / "secrets" / "channel_key"
    old, new = key_file.read_text().strip(), "C" * 43
    key_file.write_text(f"{new}\n{old}\n")
    with client_of(ControlSettings(data=data)) as client:
        assert client.post("/v1/stored-keys/reseal", json={}).status_code == 200
    key_file.write_text(f"{new}\n")
    start(data)
    key_file.write_text(f"{old}\n")
    with pytest.raises(ConfigurationError, match="channel_key is another one"):
        create_app(ControlSettings(data=data))


def test_secrets_in_the_environment_are_compared_as_well(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = (data / "secrets" / "channel_key").read_text().strip()
    (data / "secrets" / "channel_key").unlink()
    monkeypatch.setenv(KEYS_VARIABLE, f"{'D' * 43},{old}")
    start(data)
    monkeypatch.setenv(KEYS_VARIABLE, "D" * 43)
    with pytest.raises(ConfigurationError, match=f"{KEYS_VARIABLE} is another one"):
        create_app(ControlSettings(data=data))


def test_secrets_that_are_lost_for_good_are_replaced_and_the_audit_stays_sound(data: Path) -> None:
    shutil.rmtree(data / "secrets")
    assert run(data, "audit", "verify").exit_code == 2, "no key, no verdict"
    done = run(data, "secrets", "accept", *MADE, "--reason", "disk of 2 November")
    assert done.exit_code == 0 and "no API key" in done.stdout
    start(data)
    start(data)
    verified = run(data, "audit", "verify")
    assert verified.exit_code == 0, verified.output
    again = run(data, "secrets", "accept", "key_pepper", "--reason", "again")
    assert again.exit_code == 2 and "nothing to accept" in again.stderr
    (data / "secrets" / "audit_former_keys").unlink()
    with pytest.raises(ConfigurationError, match="audit_former_keys is missing"):
        create_app(ControlSettings(data=data))
    assert run(data, "secrets", "accept", "audit_former_keys", "--reason", "once more").exit_code == 0
    start(data)
    assert run(data, "audit", "verify").exit_code == 0


def test_a_name_that_is_no_secret_is_refused(data: Path) -> None:
    done = run(data, "secrets", "accept", "pepper", "--reason", "a slip")
    assert done.exit_code == 2 and "'pepper'" in done.stderr and "key_pepper" in done.stderr
