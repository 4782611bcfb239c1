"""Both databases of an installation, opened for a command: those of a running one, or a store started for the while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.location import StoreLocation
from backends.store.turns import StoreTurns
from contracts.errors import ConfigurationError
from migrations.settings import MigrationSettings
from tollkeeper.open_store import open_store
from tollkeeper.ports import Ports

_ANSWER_SECONDS: Final = 3600  # a copy or a check reads whole tables


@dataclass(frozen=True, slots=True)
class OpenInstallation:
    """An installation's store and control database, and what keeps the collector in step.

    `cluster` is what TOLLKEEPER_STORE_CLUSTER names, over whose nodes new tables are spread; empty: one server.
    """

    store: StoreClient
    database: ControlDatabase
    turns: StoreTurns
    location: StoreLocation
    secrets: SecretFiles
    cluster: str = ""

    def in_store(self, address: StoreAddress) -> StoreClient:
        """Return a client of another store, patient enough for a copy."""
        return StoreClient(address, answer_seconds=_ANSWER_SECONDS)


@contextmanager
def open_installation(
    data: Path, store_url: str, environment: Mapping[str, str], *, makes: bool = False
) -> Iterator[OpenInstallation]:
    """Open both databases: where the options say, else where `tollkeeper up` runs them, else the defaults.

    An embedded store that does not run is started, and stopped at the end. `makes`: the directory may be a new one.
    Raises ConfigurationError on settings that cannot be, or a directory that is none of ours.
    """
    with open_store(data, store_url, environment, makes=makes) as (client, settings):
        database = ControlDatabase(settings.database_address)
        try:
            turns, location = StoreTurns(data), StoreLocation(data)
            yield OpenInstallation(client, database, turns, location, settings.secrets, settings.store_cluster)
        finally:
            database.close()


@contextmanager
def open_control(data: Path, environment: Mapping[str, str]) -> Iterator[ControlDatabase]:
    """Open the control database alone, for a command that needs no store. Raises as `open_installation` does."""
    if not data.is_dir():
        raise ConfigurationError(f"{data} is not a data directory; name the installation's with --data")
    ports = Ports.from_environment(environment)
    settings = MigrationSettings(data=data, store_url=f"http://127.0.0.1:{ports.store_http}")
    database = ControlDatabase(settings.database_address)
    try:
        yield database
    finally:
        database.close()
