"""A store belongs to one installation: the processes and commands of another refuse it, and nothing is mixed."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from analytics.access_scope import AccessScope, BoundStore
from analytics.app import create_app
from analytics.settings import AnalyticsSettings
from backends.secrets.installation_id import INSTALLATION_ID, installation_id, keep_installation_id
from backends.secrets.secret_files import SecretFiles
from backends.store.client import StoreClient
from backends.store.location import StoreLocation
from backends.store.owner import read_owner
from collector.app import Collector
from collector.settings import CollectorSettings
from contracts.errors import ConfigurationError, ForeignStore, PermissionDenied
from migrations.settings import MigrationSettings
from migrations.store import check_store, migrate_store, read_migrations
from tests.migrations.test_command import run

OTHER = "other-installation"


@pytest.fixture
def others_data(migrated_store: Any, tmp_path: Path) -> Path:
    """The data directory of an installation that knows the store's passwords, say because it was cloned."""
    data = tmp_path / "other"
    shutil.copytree(migrated_store.data / "secrets", data / "secrets")
    SecretFiles(data / "secrets").replace(INSTALLATION_ID, OTHER)
    return data


def test_an_empty_store_answers_an_installation_that_has_an_id_already(migrated_store: Any, others_data: Path) -> None:
    """Before a restore the secrets are back, the id among them, and the store has no database yet."""
    migrated_store.start()
    address = MigrationSettings(data=others_data, store_url=migrated_store.url).store_address
    client = StoreClient(replace(address, database="restored_later"))
    assert client.address.installation == OTHER and client.ping()
    client.close()


def test_a_store_is_refused_to_another_installation_until_that_adopts_it(
    migrated_store: Any, others_data: Path
) -> None:
    migrated_store.start()
    before = migrated_store.client()
    assert before.address.installation == "" and read_owner(before, "tollkeeper") == ""
    others = MigrationSettings(data=others_data, store_url=migrated_store.url).store_address
    assert StoreClient(others).query("SELECT 1 AS one") == [{"one": 1}], "it has no owner yet"
    assert run(migrated_store).returncode == 0
    ours = installation_id(SecretFiles(migrated_store.data / "secrets"))
    assert len(ours) == 24 and read_owner(before, "tollkeeper") == ours
    assert before.query("SELECT 1 AS one") == [{"one": 1}], "where no id is known, nothing is compared"
    before.close()
    for address in (others, reader_of(others_data, migrated_store.url)):  # the reader may look, too
        with pytest.raises(ForeignStore, match=rf"another installation \({ours}; this one is {OTHER}\)"):
            StoreClient(address).query("SELECT 1")
    question = "SELECT count() AS found FROM requests WHERE tenant = {tenant:String} AND team = {team:String}"
    lead, asked = AccessScope("acme", "search"), {"tenant": "acme", "team": "search"}
    own = MigrationSettings(data=migrated_store.data, store_url=migrated_store.url).store_address
    assert own.installation == ours
    bound = BoundStore(own, lead)  # who sees one team alone may not ask for the owner; the client itself does
    assert bound.query(question, asked) == [{"found": 0}]
    with pytest.raises(PermissionDenied):
        bound.query("SELECT 1")
    bound.close()
    with pytest.raises(ForeignStore):
        BoundStore(others, lead).query(question, asked)
    for attempt in (check_store, partial(migrate_store, say=lambda line: None)):
        with pytest.raises(ForeignStore, match="TOLLKEEPER_STORE_URL .*--adopt-store"):
            attempt(others, read_migrations(), wait_seconds=0)
    settings = CollectorSettings(data=others_data, store_url=migrated_store.url)
    with pytest.raises(ForeignStore):
        Collector(settings)
    control = f"sqlite:///{migrated_store.data / 'control.db'}"
    with pytest.raises(ForeignStore):
        create_app(AnalyticsSettings(data=others_data, store_url=migrated_store.url, database_url=control))
    client = migrated_store.client()
    assert read_owner(client, "tollkeeper") == ours, "nothing of this has changed it"
    adopted = run(migrated_store, "--only", "store", "--adopt-store", TOLLKEEPER_DATA=str(others_data))
    assert adopted.returncode == 0
    assert StoreLocation(others_data).current(others).installation == OTHER
    client.close()  # connected since before
    with pytest.raises(ForeignStore):
        client.query("SELECT 1")
    assert not client.ping()


def test_the_same_key_pepper_makes_the_same_id_and_another_file_is_never_replaced(tmp_path: Path) -> None:
    first, second, third = (SecretFiles(tmp_path / name) for name in ("first", "second", "third"))
    made = keep_installation_id(first, "pepper")
    assert keep_installation_id(second, "pepper") == made == installation_id(first)
    assert keep_installation_id(third, "another") != made
    assert keep_installation_id(first, "another") == made, "a pepper that was lost and replaced changes no id"
    first.replace(INSTALLATION_ID, "'; DROP")
    with pytest.raises(ConfigurationError, match="8 to 64 letters"):
        installation_id(first)


def reader_of(data: Path, url: str) -> Any:
    return AnalyticsSettings(
        data=data, store_url=url, store_user="reader", store_password=SecretStr(password(data))
    ).store_address()


def password(data: Path) -> str:
    return SecretFiles(data / "secrets").get("store_reader") or ""
