"""A mirror of vLLM's prefix cache under the block keys that routers use.

vLLM's hashes start from a random seed and cannot be computed elsewhere. Its events contain the token ids, the salt and
the adapter's name, from which block keys are computed (contracts.engine.block_keys).
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec

from backends.engine.torch_engine.block_manager import KvChange
from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.vllm_engine.kv_events.messages import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    KvMessage,
)
from contracts.engine.block_keys import KEY_BYTES, chain, public_hash, root_key

_GPU: Final = "GPU"
# Kinds of layer groups with full attention: their cached blocks decide what a prompt hits.
_WHOLE: Final = (None, "full_attention", "mla_attention", "sink_full_attention", "unknown")
_MOST_SALTS: Final = 4_096

Label = tuple[str, str]  # tenant, adapter


@dataclass(slots=True)
class _Held:
    key: bytes
    label: Label
    copies: int = 0  # more than one if two requests computed the block at the same time


@dataclass(slots=True)
class KvMirror:
    """Applies a cache's events, and writes the resulting changes to `log`.

    Blocks whose parent is unknown, as after lost events, get no key: routers then know fewer blocks than are cached.
    """

    log: KvEventLog
    unnamed: int = 0  # stored blocks whose key could not be computed
    _group: int | None = None  # the layer group that is mirrored, if a model has several
    _held: dict[EngineHash, _Held] = field(default_factory=dict)
    _tenants: OrderedDict[str, str] = field(default_factory=OrderedDict)  # by salt

    def note_salt(self, salt: str, tenant: str) -> None:
        """Record which tenant a cache salt belongs to, for the labels of changes."""
        if salt and self._tenants.get(salt) != tenant:
            self._tenants[salt] = tenant
            if len(self._tenants) > _MOST_SALTS:
                self._tenants.popitem(last=False)

    def apply(self, message: KvMessage) -> None:
        """Apply one change."""
        if isinstance(message, AllBlocksCleared):
            self.clear()
        elif message.medium in (None, _GPU) and self._follows(message):
            if isinstance(message, BlockStored):
                self._store(message)
            else:
                self._remove(message)

    def clear(self) -> None:
        """Empty the mirror, because the cache was emptied or its contents are unknown."""
        if self._held:
            self._held.clear()
            self.log.note(KvChange("cleared"))

    @property
    def hashes(self) -> list[int]:
        """Return the public hashes of the mirrored blocks."""
        return [public_hash(held.key) for held in self._held.values()]

    def _follows(self, message: BlockStored | BlockRemoved) -> bool:
        if message.group_idx is None or message.group_idx == self._group:
            return True
        if self._group is None and isinstance(message, BlockStored) and message.kv_cache_spec_kind in _WHOLE:
            self._group = message.group_idx
            return True
        return False

    def _store(self, message: BlockStored) -> None:
        size, count = self.log.block_size, len(message.block_hashes)
        parent = self._parent(message)
        if parent is None or message.block_size != size or len(message.token_ids) != count * size:
            self.unnamed += count
            return
        key, label = parent
        begins = message.parent_block_hash is None
        stored: list[bytes] = []
        before: bytes | None = None if begins else key
        for place, engine_hash in enumerate(message.block_hashes):
            extras = _extras(message, place)
            if begins and not place:
                extras = [one for one in extras if not isinstance(one, str)]  # the salt, which the root has
            packed = array("I", message.token_ids[place * size : (place + 1) * size]).tobytes()
            (key,) = chain(_mixed(key, extras), packed, 4 * size)
            if self._hold(engine_hash, key, label):
                stored.append(key)
            else:
                self._tell(stored, before, label)
                stored, before = [], key
        self._tell(stored, before, label)

    def _parent(self, message: BlockStored) -> tuple[bytes, Label] | None:
        if message.parent_block_hash is not None:
            held = self._held.get(message.parent_block_hash)
            return None if held is None else (held.key, held.label)
        adapter = message.lora_name or ""
        salt = next((one for one in _extras(message, 0) if isinstance(one, str)), "")
        return root_key(salt, adapter), (self._tenants.get(salt, ""), adapter)

    def _hold(self, engine_hash: EngineHash, key: bytes, label: Label) -> bool:
        """Record one more copy of a block; return whether it is the first."""
        held = self._held.get(engine_hash)
        if held is None:
            held = self._held[engine_hash] = _Held(key, label)
        held.copies += 1
        return held.copies == 1

    def _remove(self, message: BlockRemoved) -> None:
        removed: dict[Label, list[bytes]] = {}
        for engine_hash in message.block_hashes:
            held = self._held.get(engine_hash)
            if held is None:
                continue
            held.copies -= 1
            if not held.copies:
                del self._held[engine_hash]
                removed.setdefault(held.label, []).append(held.key)
        for label, keys in removed.items():
            self.log.note(KvChange("removed", tuple(keys), None, label))

    def _tell(self, stored: Sequence[bytes], parent: bytes | None, label: Label) -> None:
        if stored:
            self.log.note(KvChange("stored", tuple(stored), parent, label))


def _extras(message: BlockStored, place: int) -> list[Any]:
    """Return a block's extra hash inputs (images, salt) without the adapter's name, which comes first."""
    found = message.extra_keys[place] if message.extra_keys and place < len(message.extra_keys) else None
    if not found:
        return []
    return found[1:] if message.lora_name and found[0] == message.lora_name else found


def _mixed(parent: bytes, extras: Sequence[Any]) -> bytes:
    """Return the parent key for a block, mixed with its images if it has any, so that no text prompt has
    the same key.
    """
    if not extras:
        return parent
    return blake2b(msgspec.msgpack.encode(extras), digest_size=KEY_BYTES, key=parent).digest()
