"""Read a model's cache contents from its engine, in frames for a gateway that mirrors it."""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from backends.engine.base import Engine
from contracts.engine.wire import KvBlocks
from contracts.errors import Unavailable

_FRAME_BLOCKS: Final = 8_192  # some milliseconds of a gateway's time


@dataclass(frozen=True, slots=True)
class CachedBlocks:
    """What a cache holds at a moment: for a gateway that begins to mirror it, or has missed something."""

    engine: str
    sequence: int  # of the first event that is not in it
    block_size: int
    hashes: list[int]


@runtime_checkable
class CachingEngine(Protocol):
    """An engine that can say what its cache holds."""

    def cached_blocks(self) -> CachedBlocks:
        """Return what the cache holds now."""


def cached_blocks(engine: Engine) -> CachedBlocks:
    """Ask an engine what its cache holds. Raises Unavailable if it cannot say."""
    if not isinstance(engine, CachingEngine):
        raise Unavailable("this engine does not tell what its cache holds", code="unsupported_call")
    return engine.cached_blocks()


def kv_frames(model: str, cached: CachedBlocks) -> list[KvBlocks]:
    """Cut what a cache holds into frames; an empty cache is one, too."""
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
