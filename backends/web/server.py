"""uvicorn's server, for processes that end by signal handlers of their own."""

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class Server(uvicorn.Server):
    """uvicorn's server, but without its signal handlers: two of them in one process would undo each other's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
