"""vLLM's KV cache events (vllm/distributed/kv_events.py, 0.25.1): msgpack, one batch per step that changed
the cache.
"""

from typing import Any, Final

import msgspec

from contracts.errors import InvalidRecord

EngineHash = int | bytes  # a block's hash in vLLM: its low 64 bits, or all of it


class BlockStored(msgspec.Struct, tag=True, gc=False):
    """Blocks that were added to the cache: a chain that follows the parent block, or starts a prompt if it is `None`.

    `extra_keys` has an entry per block: the adapter's name, images with their positions, and in the first block the
    salt.
    """

    block_hashes: list[EngineHash]
    parent_block_hash: EngineHash | None
    token_ids: list[int]
    block_size: int
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(msgspec.Struct, tag=True, gc=False):
    """Blocks that were evicted. If a hash was stored twice, each copy has its own removal."""

    block_hashes: list[EngineHash]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, gc=False):
    """The cache was emptied."""


KvMessage = BlockStored | BlockRemoved | AllBlocksCleared


class _Batch(msgspec.Struct, array_like=True):
    at_seconds: float
    events: list[KvMessage]
    data_parallel_rank: int | None = None


_decoder: Final[msgspec.msgpack.Decoder[_Batch]] = msgspec.msgpack.Decoder(_Batch)


def decode_events(payload: bytes) -> list[KvMessage]:
    """Return a batch's events in order. Raises InvalidRecord if its format is unknown."""
    try:
        return _decoder.decode(payload).events
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidRecord(f"vLLM's KV events cannot be read: {error}") from error
