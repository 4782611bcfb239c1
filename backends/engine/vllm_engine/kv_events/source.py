"""The interface of cache event sources, with a null implementation."""

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from backends.engine.base import Facts
from backends.engine.kv_frames import CachedBlocks
from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.vllm_engine.kv_events.feed import KvFeed, KvWire
from backends.engine.vllm_engine.kv_events.messages import decode_events
from backends.engine.vllm_engine.kv_events.mirror import KvMirror
from backends.engine.vllm_engine.kv_events.publisher_socket import PublisherSocket, addresses
from contracts.errors import InvalidRecord, Unavailable
from contracts.recording.records import KvRecord

_log = logging.getLogger(__name__)

_BATCHES_KEPT: Final = 10_000  # kept by vLLM for replays


class KvSource(Protocol):
    """Source of one engine's cache changes. Every call comes from the thread that steps the engine."""

    def note_salt(self, salt: str, tenant: str) -> None:
        """Record which tenant a cache salt belongs to. Called before vLLM gets the request."""

    def take(self, *, more_follows: bool = False) -> list[KvRecord]:
        """Return the cache's changes since the last call, without blocking. With `more_follows`, removals may come
        later.
        """

    def cached_blocks(self) -> CachedBlocks:
        """Return the cached blocks. Raises Unavailable if they are not known."""

    def forget(self) -> None:
        """Record that vLLM was asked to empty its prefix cache; its own event follows with its next step."""

    def facts(self) -> Facts:
        """Return counters."""

    def close(self) -> None:
        """Stop listening."""


@dataclass(slots=True)
class NoKvEvents:
    """Null implementation for an engine without cache events; `why` is the reason that errors give."""

    why: str = "this engine does not tell what its cache holds"

    def note_salt(self, salt: str, tenant: str) -> None:
        """Record nothing."""

    def take(self, *, more_follows: bool = False) -> list[KvRecord]:
        """Return no changes."""
        return []

    def cached_blocks(self) -> CachedBlocks:
        """Raise Unavailable: the cached blocks are not known."""
        raise Unavailable(self.why, code="unsupported_call")

    def forget(self) -> None:
        """Do nothing."""

    def facts(self) -> Facts:
        """Return no counters."""
        return {}

    def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class KvFollower:
    """Follows vLLM's cache by the events that it publishes."""

    feed: KvFeed
    mirror: KvMirror
    end: Callable[[], None] = lambda: None
    unreadable: int = 0

    def note_salt(self, salt: str, tenant: str) -> None:
        """Record which tenant a cache salt belongs to."""
        self.mirror.note_salt(salt, tenant)

    def take(self, *, more_follows: bool = False) -> list[KvRecord]:
        """Return the cache's changes since the last call."""
        self._follow()
        return self.mirror.log.take(more_follows=more_follows)

    def cached_blocks(self) -> CachedBlocks:
        """Return the cached blocks that events have reported."""
        self._follow()
        log = self.mirror.log
        return CachedBlocks(log.engine, log.sequence, log.block_size, self.mirror.hashes)

    def forget(self) -> None:
        """Empty the mirror."""
        self._follow()
        self.mirror.clear()

    def facts(self) -> Facts:
        """Return counters: missing batches, lost ones, unreadable ones, and blocks whose key could not be computed."""
        return {
            "kv_events_gaps": self.feed.gaps,
            "kv_events_lost": self.feed.lost,
            "kv_events_unreadable": self.unreadable,
            "kv_blocks_unnamed": self.mirror.unnamed,
        }

    def close(self) -> None:
        """Stop listening."""
        self.feed.wire.close()
        self.end()

    def _follow(self) -> None:
        for payload in self.feed.take():
            if payload is None:
                self._lose("some were lost")
                continue
            try:
                messages = decode_events(payload)
            except InvalidRecord as error:
                self.unreadable += 1
                self._lose(error.message)
                continue
            for message in messages:
                self.mirror.apply(message)

    def _lose(self, why: str) -> None:
        """Empty the mirror after lost events: what was removed meanwhile is unknown, later events fill it again."""
        _log.warning("cache content is unknown: events are missing reason=%s", why)
        self.mirror.clear()


class KvPlace:
    """The sockets on which vLLM is to publish events, chosen before it starts. `follow` returns the reader of the
    events.
    """

    def __init__(self, wire: Callable[[str, str], KvWire] = PublisherSocket) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kv-"))  # only its owner has access
        self.events, self.again = addresses(self._folder)
        self._wire = wire(self.events, self.again)  # before vLLM starts, so that its first events are received

    def config_fields(self) -> dict[str, Any]:
        """Return the fields of vLLM's KVEventsConfig."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.events,
            "replay_endpoint": self.again,
            "buffer_steps": _BATCHES_KEPT,
        }

    def follow(self, log: KvEventLog) -> KvFollower:
        """Return a follower that writes cache changes to `log`."""
        return KvFollower(KvFeed(self._wire), KvMirror(log), self._remove)

    def close(self) -> None:
        """Close the sockets and remove their folder, if the model did not load."""
        self._wire.close()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
