"""Opens an installation's store and control database for a command; starts the embedded store if it does not run."""

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
from backends.store.store_locks import StoreLocks
from contracts.errors import ConfigurationError
from migrations.settings import MigrationSettings
from tollkeeper.open_store import open_store
from tollkeeper.ports import Ports

_ANSWER_SECONDS: Final = 3600  # query timeout: a copy or a check reads whole tables


@dataclass(frozen=True, slots=True)
class OpenInstallation:
    """An installation's store and control database, and the lock that coordinates with the collector.

    `cluster`: value of TOLLKEEPER_STORE_CLUSTER, over whose nodes new tables are spread; empty: one server.
    """

    store: StoreClient
    database: ControlDatabase
    turns: StoreLocks
    location: StoreLocation
    secrets: SecretFiles
    cluster: str = ""

    def in_store(self, address: StoreAddress) -> StoreClient:
        """Return a client of another store, with a timeout long enough for a copy."""
        return StoreClient(address, answer_seconds=_ANSWER_SECONDS)


@contextmanager
def open_installation(
    data: Path, store_url: str, environment: Mapping[str, str], *, makes: bool = False
) -> Iterator[OpenInstallation]:
    """Open both databases in a `with` block: those of the options, else those of `tollkeeper up`, else the defaults.

    An embedded store that does not run is started, and stopped at the end. `makes`: create the directory if it does
    not exist. Raises ConfigurationError for invalid settings, or if the directory is not a data directory.
    """
    with open_store(data, store_url, environment, makes=makes) as (client, settings):
        database = ControlDatabase(settings.database_address)
        try:
            turns, location = StoreLocks(data), StoreLocation(data)
            yield OpenInstallation(client, database, turns, location, settings.secrets, settings.store_cluster)
        finally:
            database.close()


@contextmanager
def open_control(data: Path, environment: Mapping[str, str]) -> Iterator[ControlDatabase]:
    """Open only the control database, for a command that needs no store. Raises as `open_installation` does."""
    if not data.is_dir():
        raise ConfigurationError(f"{data} is not a data directory; name the installation's with --data")
    ports = Ports.from_environment(environment)
    settings = MigrationSettings(data=data, store_url=f"http://127.0.0.1:{ports.store_http}")
    database = ControlDatabase(settings.database_address)
    try:
        yield database
    finally:
        database.close()
