"""Watches a source of endpoints in a separate thread, and reports each change."""

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from backends.endpoints.source import Endpoint

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0

Tell = Callable[[frozenset[Endpoint]], None]


class SourceAway(Exception):
    """The source does not answer or is invalid: its last endpoints stay in use."""


class Reader(Protocol):
    """Reads one kind of source."""

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """Report the endpoints, and each change, until stopped. Raises SourceAway."""

    def interrupt(self) -> None:
        """Wake `follow` if it waits for events, so that it can stop."""


class EndpointWatch:
    """One source's endpoints. `endpoints` is `None` until the source has answered for the first time."""

    def __init__(self, name: str, reader: Reader, on_change: Callable[[], None]) -> None:
        self._name = name
        self._reader = reader
        self._on_change = on_change
        self._stop = threading.Event()
        self._heard = threading.Event()
        self.endpoints: frozenset[Endpoint] | None = None
        self.fault = ""  # why the source is unavailable; empty if it is available
        self._thread = threading.Thread(target=self._run, name=f"endpoints {name}", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until the source has answered; return whether it has."""
        return self._heard.wait(seconds)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._reader.interrupt()
        self._thread.join(_LONGEST_PAUSE_SECONDS)

    def _run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop.is_set():
            before = self._heard.is_set()
            try:
                self._reader.follow(self._tell, self._stop)
                pause = _FIRST_PAUSE_SECONDS
                continue
            except SourceAway as error:
                self._note(str(error))
            except Exception:  # the thread must not end: endpoints would never change again
                if not self.fault:
                    _log.exception("endpoints_not_followed", extra={"source": self._name})
                self.fault = "it cannot be followed; the log says why"
            if not before and self._heard.is_set():
                pause = _FIRST_PAUSE_SECONDS
            self._stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _note(self, fault: str) -> None:
        if not self.fault:
            _log.warning("endpoints_away", extra={"source": self._name, "reason": fault})
        self.fault = fault

    def _tell(self, endpoints: frozenset[Endpoint]) -> None:
        if self.fault:
            _log.info("endpoints_back", extra={"source": self._name})
            self.fault = ""
        is_change = endpoints != self.endpoints
        self.endpoints = endpoints
        self._heard.set()
        if is_change:
            _log.info("endpoints_changed", extra={"source": self._name, "count": len(endpoints)})
            self._on_change()
