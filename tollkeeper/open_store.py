"""Opens only an installation's store, for commands that only query; does not import the control database's library."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backends.secrets.private_files import keep_private
from backends.store.client import StoreClient
from backends.store.location import StoreLocation
from contracts.errors import ConfigurationError
from migrations.settings import MigrationSettings
from tollkeeper.installation import Installation
from tollkeeper.ports import Ports, require_free

_ANSWER_SECONDS: Final = 3600  # query timeout: a copy or a check reads whole tables
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


@contextmanager
def open_store(
    data: Path, store_url: str, environment: Mapping[str, str], *, makes: bool = False
) -> Iterator[tuple[StoreClient, MigrationSettings]]:
    """Open the store in a `with` block: the one of the options, else the one of `tollkeeper up`, else the default.

    Yields a client and the settings. An embedded store that does not run is started, and stopped at the end. `makes`:
    create the directory if it does not exist. Raises ConfigurationError for invalid settings, or if the directory is
    not a data directory.
    """
    keep_private(data)
    if makes:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif not data.is_dir():
        raise ConfigurationError(f"{data} is not a data directory; name the installation's with --data")
    ports = Ports.from_environment(environment)
    chosen = store_url or environment.get("TOLLKEEPER_STORE_URL", "")
    url = chosen or Installation(data).address_of("store") or f"http://127.0.0.1:{ports.store_http}"
    is_embedded = not chosen or ports.names_own_store(chosen)
    settings = MigrationSettings(data=data, store_url=url)
    address = StoreLocation(data).current(settings.store_address)
    client = StoreClient(address, answer_seconds=_ANSWER_SECONDS)
    try:
        with _running(client, data, ports, environment, is_ours=is_embedded and address.url == url):
            yield client, settings
    finally:
        client.close()


@contextmanager
def _running(
    client: StoreClient, data: Path, ports: Ports, environment: Mapping[str, str], *, is_ours: bool
) -> Iterator[None]:
    if not is_ours or client.ping():
        yield
        return
    require_free("127.0.0.1", {"store_http": ports.store_http, "store_native": ports.store_native})
    variables = {**environment, **ports.environment(), "TOLLKEEPER_DATA": str(data.absolute())}
    with (data / "store.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "backends.store"], env=variables, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not client.ping():
            if process.poll() is not None or time.monotonic() >= deadline:
                raise ConfigurationError(f"the store of {data} does not start; see {data / 'store.log'}")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
