"""Passes requests and aborts from other threads to the stepping thread."""

import threading
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from contracts.engine.wire import Finished, Submit


class Submitted(Protocol):
    """A request in the form that an engine stores."""

    @property
    def submit(self) -> Submit:
        """Return the submitted request."""


R = TypeVar("R", bound=Submitted)


@dataclass(frozen=True, slots=True)
class Mail(Generic[R]):
    """Received messages, in order: accepted requests, ids of requests to abort, accounts of refused ones."""

    accepted: list[R]
    aborted: list[bytes]
    refused: list[Finished]


@dataclass(slots=True)
class Inbox(Generic[R]):
    """A thread-safe inbox. An id is known from `reserve` on, so that an abort may overtake the request's
    preparation.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _accepted: list[R] = field(default_factory=list)
    _aborted: list[bytes] = field(default_factory=list)
    _refused: list[Finished] = field(default_factory=list)
    _known: set[bytes] = field(default_factory=set)
    _unwanted: set[bytes] = field(default_factory=set)  # aborted while they were prepared

    @property
    def is_empty(self) -> bool:
        """Return whether `take` would return nothing."""
        return not (self._accepted or self._aborted or self._refused)

    def reserve(self, request_id: bytes) -> bool:
        """Reserve a request id. Returns False if it is in use."""
        with self._lock:
            if request_id in self._known:
                return False
            self._known.add(request_id)
            return True

    def accept(self, request: R) -> None:
        """Add a request, whose id must be reserved."""
        with self._lock:
            self._accepted.append(request)

    def refuse(self, account: Finished) -> None:
        """Add the account of a refused request, and free its id."""
        with self._lock:
            self._known.discard(account.request_id)
            self._unwanted.discard(account.request_id)
            self._refused.append(account)

    def abort(self, request_id: bytes) -> None:
        """Request the end of a request; an unknown id is ignored."""
        with self._lock:
            if request_id in self._known:
                self._aborted.append(request_id)

    def forget(self, request_id: bytes) -> None:
        """Free the id of a request that has ended."""
        with self._lock:
            self._known.discard(request_id)

    def take(self, serving: Container[bytes]) -> Mail[R]:
        """Return and clear the received messages. `serving` are the ids of returned requests that have not ended."""
        with self._lock:
            mail = Mail(self._accepted, self._aborted, self._refused)
            self._accepted, self._aborted, self._refused = [], [], []
            arrived = {request.submit.request_id for request in mail.accepted}
            self._unwanted.update(one for one in mail.aborted if one not in arrived and one not in serving)
            mail.aborted.extend(self._unwanted & arrived)
            self._unwanted -= arrived
            self._unwanted &= self._known
        return mail
