"""Reads the content of an engine's KV cache, as frames for a gateway that mirrors it."""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from backends.engine.base import Engine
from contracts.engine.wire import KvBlocks
from contracts.errors import Unavailable

_FRAME_BLOCKS: Final = 8_192  # takes a gateway some milliseconds


@dataclass(frozen=True, slots=True)
class CachedBlocks:
    """The content of a cache at one time, for a gateway that starts to mirror it or has missed events."""

    engine: str
    sequence: int  # of the first later event
    block_size: int
    hashes: list[int]


@runtime_checkable
class CachingEngine(Protocol):
    """An engine that can report its cache's content."""

    def cached_blocks(self) -> CachedBlocks:
        """Return the current content of the cache."""


def cached_blocks(engine: Engine) -> CachedBlocks:
    """Return an engine's cache content. Raises Unavailable if it cannot report it."""
    if not isinstance(engine, CachingEngine):
        raise Unavailable("this engine does not tell what its cache holds", code="unsupported_call")
    return engine.cached_blocks()


def kv_frames(model: str, cached: CachedBlocks) -> list[KvBlocks]:
    """Return a cache's content as frames; at least one, even if it is empty."""
    hashes = cached.hashes
    return [
        KvBlocks(
            model=model,
            engine=cached.engine,
            sequence=cached.sequence,
            block_size=cached.block_size,
            block_hashes=hashes[start : start + _FRAME_BLOCKS],
            is_last=start + _FRAME_BLOCKS >= len(hashes),
        )
        for start in range(0, max(len(hashes), 1), _FRAME_BLOCKS)
    ]
