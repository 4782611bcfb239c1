"""The store's location after a move: a file that the collector reads."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backends.secrets.private_files import write_private
from backends.store.address import StoreAddress
from backends.store.client import Row, StoreClient
from contracts.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow

_FILE: Final = "store-moved.json"


class StoreLocation:
    """The file that `store move` writes: from which store to which. It applies only to the store that was moved."""

    def __init__(self, data: Path) -> None:
        self._path = data / _FILE

    def write(self, moved_from: StoreAddress, moved_to: StoreAddress) -> None:
        """Record that the store has moved. The file contains the new store's password, so its mode is 0600."""
        facts = {
            "from": {"url": moved_from.url, "database": moved_from.database},
            "to": {
                "url": moved_to.url,
                "database": moved_to.database,
                "user": moved_to.user,
                "password": moved_to.password,
            },
        }
        try:
            write_private(self._path, f"{json.dumps(facts, indent=2)}\n".encode())
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be written ({error.strerror})") from error

    def current(self, configured: StoreAddress) -> StoreAddress:
        """Return the current address of the configured store. Raises ConfigurationError if the file cannot be read."""
        try:
            facts = json.loads(self._path.read_text())
            if facts["from"] != {"url": configured.url, "database": configured.database}:
                return configured
            new = {name: str(facts["to"][name]) for name in ("url", "database", "user", "password")}
        except (FileNotFoundError, NotADirectoryError):  # a missing data directory is reported elsewhere
            return configured
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigurationError(
                f"{self._path} says where the store was moved to, and cannot be read ({type(error).__name__}); "
                "set TOLLKEEPER_STORE_URL to where it is and remove the file"
            ) from error
        return replace(configured, **new)

    def changed_ns(self) -> int:
        """Return the file's modification time in Unix nanoseconds; 0 if it does not exist."""
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0


class FollowingStore:
    """A store's client that switches to the new store after a move. For one thread at a time.

    A move is recorded only while no batch is in progress (see `turns`), so that no batch is split between two stores.
    """

    def __init__(self, configured: StoreAddress, location: StoreLocation) -> None:
        self._configured = configured
        self._location = location
        self._seen_ns = -1
        self._client: StoreClient | None = None

    def insert_arrow(self, table: str, data: "pyarrow.Table", *, deduplication_token: str) -> None:
        """Insert a batch like `StoreClient.insert_arrow`."""
        self._current().insert_arrow(table, data, deduplication_token=deduplication_token)

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> list[Row]:
        """Return a query's rows like `StoreClient.query`."""
        return self._current().query(sql, parameters, settings=settings)

    def ping(self) -> bool:
        """Return whether the store answers; never raises."""
        try:
            return self._current().ping()
        except ConfigurationError:
            return False

    def require_own(self) -> None:
        """Raise ForeignStore like `StoreClient.require_own`."""
        self._current().require_own()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _current(self) -> StoreClient:
        changed_ns = self._location.changed_ns()
        if self._client is None or changed_ns != self._seen_ns:
            address = self._location.current(self._configured)
            if self._client is None or address != self._client.address:
                self.close()
                self._client = StoreClient(address)
            self._seen_ns = changed_ns
        return self._client
