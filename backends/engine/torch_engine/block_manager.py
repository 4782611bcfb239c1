"""Manages KV blocks: block tables, reference counts, the prefix cache and its eviction. No tensors.

A block is blank (empty), held (by one or more tables, or pinned) or idle (cached but not held; evicted least recently
used first). A block is published in the cache under its key once it is full and computed; from then on it is never
written again.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

BLOCK_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class KvChange:
    """A change of the cache, for events. `parent` is `None` if a chain starts or its parent is unknown."""

    event: Literal["stored", "removed", "cleared"]
    keys: tuple[bytes, ...] = ()
    parent: bytes | None = None
    label: tuple[str, str] = ("", "")  # tenant, adapter


@dataclass(slots=True)
class _Table:
    blocks: list[int]
    published: int  # how many of them are full and published in the cache
    label: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Numbers of blocks by state: held + idle + blank = total. `cached` of them have a key."""

    total: int
    held: int
    idle: int
    blank: int
    cached: int


@dataclass(slots=True)
class BlockManager:
    """Manages the blocks of one pool. Owners are integers chosen by the caller; each has at most one table."""

    total: int
    block_size: int = BLOCK_SIZE
    on_change: Callable[[KvChange], None] | None = None
    _references: list[int] = field(init=False)
    _keys: list[bytes | None] = field(init=False)
    _labels: dict[int, tuple[str, str]] = field(init=False, default_factory=dict)
    _by_key: dict[bytes, int] = field(init=False, default_factory=dict)
    _blank: list[int] = field(init=False)
    _idle: OrderedDict[int, None] = field(init=False, default_factory=OrderedDict)
    _tables: dict[int, _Table] = field(init=False, default_factory=dict)
    _pins: dict[bytes, int] = field(init=False, default_factory=dict)
    _only_pinned: set[bytes] = field(init=False, default_factory=set)  # blocks held only by a single pin

    def __post_init__(self) -> None:
        self._references = [0] * self.total
        self._keys = [None] * self.total
        self._blank = list(range(self.total - 1, -1, -1))

    # Queries.

    @property
    def available(self) -> int:
        """Return how many blocks could be allocated now, evicting idle ones."""
        return len(self._blank) + len(self._idle)

    def counts(self) -> BlockCounts:
        """Return the numbers of blocks by state."""
        idle, blank = len(self._idle), len(self._blank)
        return BlockCounts(self.total, self.total - idle - blank, idle, blank, len(self._by_key))

    def table(self, owner: int) -> list[int]:
        """Return an owner's blocks, in order. The caller must not change the list."""
        return self._tables[owner].blocks

    def owners(self) -> list[int]:
        """Return the owners that have a table."""
        return list(self._tables)

    def cached_keys(self) -> set[bytes]:
        """Return the keys of every cached block."""
        return set(self._by_key)

    def blocks_for(self, tokens: int) -> int:
        """Return how many blocks a number of tokens needs."""
        return -(-tokens // self.block_size)

    def hits(self, keys: Sequence[bytes], tokens: int) -> list[int]:
        """Return the cached blocks at the start of a prompt, of which at least the last token must be computed."""
        found = []
        for key in keys[: (tokens - 1) // self.block_size]:
            block = self._by_key.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def lack(self, keys: Sequence[bytes], tokens: int, spare: int = 0) -> int:
        """Return how many blocks are missing for `open`, if `spare` blocks shall stay free; 0 or less: none."""
        found = self.hits(keys, tokens)
        missing = self.blocks_for(tokens) - len(found)
        idle_hits = sum(1 for block in found if not self._references[block])
        return missing + max(spare, idle_hits) - self.available

    def is_only_pinned(self, key: bytes) -> bool:
        """Return whether a block is held only by a pin, so that `unpin` would free it."""
        return key in self._only_pinned

    def only_pinned(self, but: Collection[bytes] = ()) -> int:
        """Return the number of blocks that `unpin` would free, except those under the keys `but`."""
        return len(self._only_pinned) - sum(1 for key in but if key in self._only_pinned)

    def keys_of_adapter(self, adapter: str) -> list[bytes]:
        """Return the keys of the blocks that were computed with an adapter."""
        return [key for key, block in self._by_key.items() if self._labels[block][1] == adapter]

    # Changes.

    def open(self, owner: int, keys: Sequence[bytes], tokens: int, label: tuple[str, str] = ("", "")) -> int | None:
        """Create an owner's table for `tokens`, starting with cached blocks.

        Returns the number of cached tokens; `None`, with nothing changed, if there are not enough blocks.
        """
        if owner in self._tables:
            raise ValueError(f"owner {owner} already has a table")
        found = self.hits(keys, tokens)
        idle_hits = sum(1 for block in found if not self._references[block])
        missing = self.blocks_for(tokens) - len(found)
        if missing > self.available - idle_hits:
            return None
        for block in found:
            self._hold(block)
        self._tables[owner] = _Table(found + [self._take() for _ in range(missing)], len(found), label)
        return len(found) * self.block_size

    def grow(self, owner: int, tokens: int) -> bool:
        """Extend an owner's table to `tokens`. Returns False, with nothing changed, if there are not enough blocks."""
        table = self._tables[owner]
        missing = self.blocks_for(tokens) - len(table.blocks)
        if missing <= 0:
            return True
        if missing > self.available:
            return False
        table.blocks.extend(self._take() for _ in range(missing))
        return True

    def fork(self, parent: int, child: int, tokens: int) -> list[tuple[int, int]] | None:
        """Create a table for `child` with the parent's first `tokens`; full blocks are shared.

        An incomplete last block is copied, because both would write to it: returns the (from, to) pairs that the caller
        must copy; `None`, with nothing changed, if there is no block for it.
        """
        if child in self._tables:
            raise ValueError(f"owner {child} already has a table")
        source = self._tables[parent]
        full, rest = divmod(tokens, self.block_size)
        if rest and not self.available:
            return None
        shared = source.blocks[:full]
        for block in shared:
            self._hold(block)
        table = _Table(list(shared), min(source.published, full), source.label)
        self._tables[child] = table
        if not rest:
            return []
        table.blocks.append(self._take())
        return [(source.blocks[full], table.blocks[full])]

    def publish(self, owner: int, keys: Sequence[bytes], computed: int) -> None:
        """Publish an owner's computed full blocks in the cache, under their keys; `computed` is in tokens.

        A block whose key is already cached stays private: the older block serves hits.
        """
        table = self._tables[owner]
        full = computed // self.block_size
        if full <= table.published:
            return
        stored: list[bytes] = []
        first = table.published
        for place in range(table.published, full):
            key, block = keys[place], table.blocks[place]
            if key in self._by_key:
                self._tell_stored(stored, keys, first, table.label)
                stored, first = [], place + 1
                continue
            self._by_key[key] = block
            self._keys[block] = key
            self._labels[block] = table.label
            stored.append(key)
        table.published = full
        self._tell_stored(stored, keys, first, table.label)

    def free(self, owner: int) -> None:
        """Remove an owner's table. Its blocks become idle if nothing else holds them; the end of the prefix is evicted
        first.
        """
        for block in reversed(self._tables.pop(owner).blocks):
            self._release(block)

    def pin(self, key: bytes) -> bool:
        """Protect a cached block from eviction until as many `unpin`. Returns False if it is not cached."""
        block = self._by_key.get(key)
        if block is None:
            return False
        self._hold(block)
        self._pins[key] = self._pins.get(key, 0) + 1
        if self._references[block] == 1:
            self._only_pinned.add(key)
        return True

    def unpin(self, key: bytes) -> None:
        """Undo one `pin`. Raises KeyError if the key is not pinned."""
        self._pins[key] -= 1
        if not self._pins[key]:
            del self._pins[key]
            self._only_pinned.discard(key)
        self._release(self._by_key[key])

    def forget(self, keys: Sequence[bytes]) -> None:
        """Remove blocks from the cache, so that they serve no more hits; held ones become private.

        Raises ValueError if one is pinned.
        """
        removed: dict[tuple[str, str], list[bytes]] = {}
        for key in keys:
            if key in self._pins:
                raise ValueError("a pinned block cannot be forgotten")
            block = self._by_key.pop(key, None)
            if block is None:
                continue
            self._keys[block] = None
            removed.setdefault(self._labels.pop(block), []).append(key)
            if not self._references[block]:
                del self._idle[block]
                self._blank.append(block)
        for label, gone in removed.items():
            self._tell(KvChange("removed", tuple(gone), None, label))

    def clear(self) -> None:
        """Empty the cache: idle blocks become blank, and held ones private."""
        for key in list(self._pins):
            while key in self._pins:
                self.unpin(key)
        for block in self._by_key.values():
            self._keys[block] = None
        self._blank.extend(self._idle)
        self._idle.clear()
        self._by_key.clear()
        self._labels.clear()
        self._tell(KvChange("cleared"))

    def check_integrity(self) -> None:
        """Raise ValueError, with the first fault, unless every block has exactly one state and its counts agree."""
        held = [0] * self.total
        for table in self._tables.values():
            for block in table.blocks:
                held[block] += 1
        for key, pins in self._pins.items():
            held[self._by_key[key]] += pins
        blank = set(self._blank)
        if len(blank) != len(self._blank):
            raise ValueError("a block is blank twice")
        for block in range(self.total):
            if held[block] != self._references[block]:
                raise ValueError(f"block {block} has {self._references[block]} references and {held[block]} holders")
            places = (held[block] > 0) + (block in blank) + (block in self._idle)
            if places != 1:
                raise ValueError(f"block {block} is in {places} of the places held, blank and idle")
            own = self._keys[block]
            if own is not None and self._by_key.get(own) != block:
                raise ValueError(f"block {block} has a key that is another block's")
            if own is not None and (own in self._only_pinned) != (held[block] == 1 and own in self._pins):
                raise ValueError(f"block {block} is wrongly known as only pinned, or as not")
            if block in self._idle and own is None:
                raise ValueError(f"block {block} is idle without a key")
        if sum(own is not None for own in self._keys) != len(self._by_key):
            raise ValueError("the cache knows keys that no block has")
        if not self._only_pinned <= self._by_key.keys():
            raise ValueError("a block is pinned that is not cached")

    # Single blocks.

    def _hold(self, block: int) -> None:
        if not self._references[block]:
            del self._idle[block]
        elif self._only_pinned and (key := self._keys[block]) is not None:
            self._only_pinned.discard(key)
        self._references[block] += 1

    def _release(self, block: int) -> None:
        self._references[block] -= 1
        key = self._keys[block]
        if self._references[block]:
            if self._references[block] == 1 and key is not None and key in self._pins:
                self._only_pinned.add(key)
            return
        if key is None:
            self._blank.append(block)
        else:
            self._idle[block] = None

    def _take(self) -> int:
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            self._evict(block)
        self._references[block] = 1
        return block

    def _evict(self, block: int) -> None:
        key = self._keys[block]
        if key is None:
            raise ValueError(f"block {block} is idle without a key")
        del self._by_key[key]
        self._keys[block] = None
        self._tell(KvChange("removed", (key,), None, self._labels.pop(block)))

    def _tell_stored(self, stored: list[bytes], keys: Sequence[bytes], first: int, label: tuple[str, str]) -> None:
        if stored:
            self._tell(KvChange("stored", tuple(stored), keys[first - 1] if first else None, label))

    def _tell(self, change: KvChange) -> None:
        if self.on_change is not None:
            self.on_change(change)
