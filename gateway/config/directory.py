"""The current configuration snapshot of the data plane, kept up to date by polling one revision number."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from backends.processes.beat import until_beat
from contracts.errors import ConfigurationError, ControlUnavailable, TollkeeperError
from contracts.serving.configuration import EMPTY_SNAPSHOT, Snapshot
from gateway.request.clock import Clock

_log = logging.getLogger(__name__)

# Four looks a second at one row: a revoked key is refused everywhere in well under a second. Not `Final`, which machine
# code would take for good: tests look more often.
_POLL_SECONDS = 0.25
_POLL_PART_SECONDS = 0.5
_POLL_PARTS = 6  # a poll without an answer for longer shows that the source is away: it may be a stopped database
_READ_PARTS = 60  # while it reads what changed


class RefusedSnapshot(ConfigurationError):
    """The source's current configuration cannot be used; the previous one stays in use."""


class SnapshotSource(Protocol):
    """A source of snapshots: the control-plane database or a file."""

    @property
    def has_answered(self) -> bool:
        """Return whether the source has answered the current poll, so that only reading the changes remains."""

    def may_have_changed(self) -> bool:
        """Return whether a poll could find changes. Called on the event loop, so it must be quick."""

    def poll(self, known_revision: int) -> Snapshot | None:
        """Return a newer snapshot, or `None` if nothing has changed; may block. Raises RefusedSnapshot if the new
        configuration is invalid.
        """

    def close(self) -> None:
        """Close connections; may block."""


class Directory:
    """Holds the current snapshot and replaces it as a whole.

    If the source is unreachable, the last snapshot stays in use for `stale_seconds`; after that keys can no longer be
    trusted. If the source or `prepare` refuses a snapshot, the previous one stays in use, and `refused` contains the
    reason.
    """

    def __init__(
        self,
        source: SnapshotSource,
        first: Snapshot,
        clock: Clock,
        stale_seconds: float,
        on_change: Callable[[], None],
        prepare: Callable[[Snapshot], None] | None = None,  # before a newer one is used; may raise RefusedSnapshot
    ) -> None:
        self._source = source
        self._clock = clock
        self._stale_ns = round(stale_seconds * 1e9)
        self._seen_ns = clock.monotonic_ns()
        self._on_change = on_change
        self._prepare = prepare
        self._looking = asyncio.Lock()
        self._polling: asyncio.Future[Snapshot | None] | None = None
        self.refused = ""
        self.snapshot = EMPTY_SNAPSHOT
        self._swap(first)
        self.is_source_away = False

    def begin_away(self, seconds: float) -> None:
        """Record that the first snapshot was read from disk, and for how many seconds its source has been
        unreachable.
        """
        _log.warning(
            "control plane unreachable, serving from the snapshot on disk", extra={"age_seconds": round(seconds)}
        )
        self.is_source_away = True
        self._seen_ns -= round(seconds * 1e9)

    @property
    def is_too_old(self) -> bool:
        """Return whether the source has been unreachable for longer than keys may be served from memory."""
        return self.is_source_away and self._clock.monotonic_ns() - self._seen_ns > self._stale_ns

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_POLL_SECONDS))
            await self.refresh()

    async def refresh(self) -> None:
        """Check once for a newer snapshot."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        try:
            newer = None
            if self._polling is not None or self._source.may_have_changed():
                newer = await self._polled()
            if newer is not None:
                if self._prepare is not None:
                    self._prepare(newer)
                self._swap(newer)
                self.refused = ""
                self._on_change()
        except RefusedSnapshot as refusal:  # a name of its own: the compiler gives a name one type
            if self.refused != refusal.message:
                _log.error("configuration refused, the previous one stays in use", extra={"reason": refusal.message})
            self.refused = refusal.message
        except TollkeeperError as error:
            if not self.is_source_away:
                _log.warning("control plane unreachable, serving from memory", extra={"reason": error.message})
            self.is_source_away = True
            return
        except Exception:  # the edge of the polling: were it to end, no key could be revoked any more
            if not self.is_source_away:
                _log.exception("control plane cannot be read, serving from memory")
            self.is_source_away = True
            return
        if self.is_source_away:
            _log.info("control plane back")
        self.is_source_away = False
        self._seen_ns = self._clock.monotonic_ns()

    async def _polled(self) -> Snapshot | None:
        """Poll in a thread. Raise ControlUnavailable if that takes too long; the next call waits for the same poll."""
        polling = self._polling
        if polling is None:
            polling = asyncio.ensure_future(asyncio.to_thread(self._source.poll, self.snapshot.revision))
            self._polling = polling
        # By parts: what holds this process up is no fault of the source's. One that is late already is not waited for.
        parts = 0
        while parts < (_READ_PARTS if self._source.has_answered else 1 if self.is_source_away else _POLL_PARTS):
            parts += 1
            done, _ = await asyncio.wait((polling,), timeout=_POLL_PART_SECONDS)
            if done:
                self._polling = None
                return polling.result()
        raise ControlUnavailable(f"it has not answered for {parts * _POLL_PART_SECONDS:g} s or more")

    async def close(self) -> None:
        """Close the source's connections. `run` has ended."""
        await asyncio.to_thread(self._source.close)

    def _swap(self, newer: Snapshot) -> None:
        known = frozenset(self.snapshot.misconfigured)
        for fault in newer.misconfigured:
            if fault not in known:  # once, not at every change of something else
                _log.error("misconfigured", extra={"reason": fault})
        self.snapshot = newer
