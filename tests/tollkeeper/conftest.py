"""A control plane as `tollkeeper up` leaves it behind: running and announced in a data directory."""

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.second_store import other_store as other_store
from tests.second_store import second_store as second_store
from tollkeeper.installation import Installation


@contextmanager
def announced(migrated_sqlite: Path, folder: Path) -> Iterator[Path]:
    """Run a control plane on a copy of the database, and announce it in the data directory that this gives."""
    # What the commands say does not depend on the database, so the quicker one will do.
    database = Path(shutil.copy(migrated_sqlite, folder / "control.db"))
    listener = socket.create_server(("127.0.0.1", 0))
    settings = ControlSettings(data=folder / "data", database_url=f"sqlite:///{database}")
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    installation = Installation(settings.data)
    installation.prepare()
    installation.write_addresses({"control": f"http://127.0.0.1:{listener.getsockname()[1]}"})
    try:
        yield settings.data
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@pytest.fixture
def data(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Path]:
    """A data directory whose control plane runs and has been announced, as by `tollkeeper up`."""
    with announced(migrated_sqlite, tmp_path) as folder:
        yield folder


@pytest.fixture(scope="module")
def refusing_data(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same for tests that are only refused: they leave nothing behind, so one serves all of a file."""
    with announced(migrated_sqlite, tmp_path_factory.mktemp("control")) as folder:
        yield folder
