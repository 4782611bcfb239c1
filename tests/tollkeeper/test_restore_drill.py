"""Backup, everything lost, restore: refused without the secrets, complete with them, and the audit verifies."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from backends.audit.options import audit_root
from contracts.errors import ConfigurationError
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.gateway.control.conftest import client_of
from tollkeeper.cli import app

Run = Callable[..., Result]


class Place:
    """An installation on one of the session's stores, whose control database is a file of the test's own."""

    def __init__(self, store: Any, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data: Path = store.data
        self._environment = {name: value for name, value in store.environment.items() if name.startswith("TOLLKEEPER_")}
        self.settings = ControlSettings(data=self.data, database_url=f"sqlite:///{database}")
        self._monkeypatch = monkeypatch
        self.forget()

    def run(self, *words: str, **more: str) -> Result:
        for name, value in self._environment.items():
            self._monkeypatch.setenv(name, value)
        self._monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", self.settings.database_url)
        for name, value in more.items():
            self._monkeypatch.setenv(name, value)
        return CliRunner().invoke(app, list(words))

    def verify(self) -> int:
        return self.run("audit", "verify").exit_code

    def serve(self) -> None:
        """Start, create a tenant if there is none, stop."""
        with client_of(self.settings) as client:
            client.post("/v1/tenants", json={"id": "acme", "name": "Acme"})
            assert client.put("/v1/stored-keys/openai", json={"value": "sk-provider"}).status_code == 200

    def forget(self) -> None:
        """Remove what the control plane keeps beside the store."""
        shutil.rmtree(audit_root(self.data), ignore_errors=True)
        for name in ("key_pepper", "channel_key", "audit_signing_key", "audit_hash_key", "audit_former_keys"):
            (self.data / "secrets" / name).unlink(missing_ok=True)
        for name in ("record_signing_key", "cache_salt", "webhook_secret", "admin_token", "demo_key"):
            (self.data / "secrets" / name).unlink(missing_ok=True)


@pytest.fixture
def lost(
    empty_store: Any, migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Path, Result]]:
    """A backup of an installation that is gone, its secrets, and what the backup said."""
    shutil.copy(migrated_sqlite, tmp_path / "first.db")
    place = Place(empty_store, tmp_path / "first.db", monkeypatch)
    place.serve()
    made = place.run("backup", str(tmp_path / "copy"), TOLLKEEPER_SLACK_URL="https://chat.example/hidden")
    assert made.exit_code == 0, made.output
    monkeypatch.delenv("TOLLKEEPER_SLACK_URL")
    shutil.copytree(place.data / "secrets", tmp_path / "kept")
    place.forget()
    (tmp_path / "first.db").unlink()
    yield tmp_path / "copy", tmp_path / "kept", made


@pytest.fixture
def place(other_store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """An empty installation."""
    place = Place(other_store, tmp_path / "second.db", monkeypatch)
    yield place
    place.forget()


def put_back(kept: Path, place: Place) -> None:
    for file in kept.iterdir():
        if not file.name.startswith("store_"):
            shutil.copy(file, place.data / "secrets" / file.name)


def test_a_backup_says_what_it_does_not_hold(lost: tuple[Path, Path, Result]) -> None:
    copy, _, made = lost
    assert "not included" in made.stdout and "secrets" in made.stdout and "key_pepper" in made.stdout
    manifest = json.loads((copy / "backup.json").read_text())
    assert "TOLLKEEPER_SLACK_URL" in manifest["settings"] and "hidden" not in (copy / "backup.json").read_text()
    assert not any(part["what"].startswith("audit chain") for part in manifest["not_included"])


def test_a_restore_without_the_secrets_is_refused_and_names_them(lost: tuple[Path, Path, Result], place: Place) -> None:
    copy, kept, _ = lost
    refused = place.run("restore", str(copy))
    assert refused.exit_code == 2
    for name in ("key_pepper", "channel_key", "audit_signing_key", "cache_salt", "webhook_secret"):
        assert f"{name} is missing" in refused.stderr, name
    assert not Path(place.settings.database_url.removeprefix("sqlite:///")).exists()
    put_back(kept, place)
    done = place.run("restore", str(copy))
    assert done.exit_code == 0, done.output
    assert "audit: verified" in done.stdout and "TOLLKEEPER_SLACK_URL" in done.stdout
    assert place.verify() == 0
    place.serve()
    place.serve()
    assert place.verify() == 0
    with client_of(place.settings) as client:
        assert "acme" in [tenant["id"] for tenant in client.get("/v1/tenants").json()["data"]]


def test_a_restore_with_another_key_of_the_audit_is_refused(lost: tuple[Path, Path, Result], place: Place) -> None:
    copy, kept, _ = lost
    put_back(kept, place)
    key = place.data / "secrets" / "audit_signing_key"
    key.write_text("A" * 43 + "\n")
    refused = place.run("restore", str(copy))
    assert refused.exit_code == 2 and "audit_signing_key is another one" in refused.stderr


def test_what_is_lost_for_good_is_restored_anyway_and_accepted(lost: tuple[Path, Path, Result], place: Place) -> None:
    copy, _, _ = lost
    done = place.run("restore", str(copy), "--anyway", "--json")
    assert done.exit_code == 1, done.output
    facts = json.loads(done.stdout)
    assert facts["put_back"] and "audit_signing_key" in facts["audit_faults"][0]
    with pytest.raises(ConfigurationError, match="key_pepper is missing"):
        create_app(place.settings)
    assert place.verify() == 2, "without the key there is no verdict"
    names = ("key_pepper", "channel_key", "audit_signing_key", "audit_hash_key", "record_signing_key")
    accepted = place.run("secrets", "accept", *names, "cache_salt", "webhook_secret", "--reason", "the safe burned")
    assert accepted.exit_code == 0, accepted.output
    assert place.verify() == 0
    with client_of(place.settings) as client:
        assert client.get("/v1/tenants").status_code == 200
    assert place.verify() == 0


def test_a_backup_without_the_chain_that_vouches_says_so_and_a_restore_wants_it(
    empty_store: Any, migrated_sqlite: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(migrated_sqlite, tmp_path / "first.db")
    first = Place(empty_store, tmp_path / "first.db", monkeypatch)
    first.serve()
    shutil.move(audit_root(first.data), tmp_path / "audit")
    made = first.run("backup", str(tmp_path / "copy"))
    assert made.exit_code == 0 and "audit chain control/" in made.stdout, made.output
    put_back(first.data / "secrets", place)
    first.forget()
    refused = place.run("restore", str(tmp_path / "copy"))
    assert refused.exit_code == 2 and "audit chain control/" in refused.stderr
    shutil.copytree(tmp_path / "audit", audit_root(place.data))
    done = place.run("restore", str(tmp_path / "copy"))
    assert done.exit_code == 0, done.output
    assert place.verify() == 0
