"""Pins cached prefixes that requests marked, until their time ends. No tensors."""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from backends.engine.torch_engine.sequence import Sequence as Choice

_MOST_SHARE: Final = 0.5  # of all blocks; the rest is for running requests
_TENANT_SHARE: Final = 0.25


_SECOND_NS: Final = 1_000_000_000


class PinnedBlocks(Protocol):
    """The methods of an engine's block manager that pinning uses."""

    @property
    def total(self) -> int:
        """Return the number of all blocks."""

    @property
    def block_size(self) -> int:
        """Return the number of tokens per block."""

    def pin(self, key: bytes, /) -> bool:
        """Protect a cached block from eviction until as many `unpin`. Returns False if it is not cached."""

    def unpin(self, key: bytes, /) -> None:
        """Undo one `pin`."""

    def is_only_pinned(self, key: bytes, /) -> bool:
        """Return whether a block is held only by a pin."""

    def only_pinned(self, but: Collection[bytes] = (), /) -> int:
        """Return the number of blocks that `unpin` would free, except those under the keys `but`."""


@dataclass(slots=True)
class _Pin:
    until_ns: int
    tenant: str


@dataclass(slots=True)
class PinnedPrefixes:
    """The pinned blocks by key. Keys are salted by tenant, so tenants cannot pin each other's. Times are monotonic.

    Of a prefix, the last block is released first, so that the rest is still a prefix.
    """

    blocks: PinnedBlocks
    given_up: int = 0  # blocks that were released early because requests needed them
    _pins: dict[bytes, _Pin] = field(default_factory=dict)
    _ends: list[tuple[int, int, bytes]] = field(default_factory=list)  # a heap: time, minus the position, key
    _of_tenants: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._pins)

    def keep(self, keys: Sequence[bytes], tenant: str, until_ns: int) -> bool:
        """Pin a prefix's blocks. Returns True if all are pinned; False, with none pinned, if there is no room or one is
        not cached.

        Blocks that are already pinned stay pinned until the later time.
        """
        fresh = [key for key in keys if key not in self._pins]
        total = self.blocks.total
        if len(self._pins) + len(fresh) > total * _MOST_SHARE:
            return False
        if self._of_tenants.get(tenant, 0) + len(fresh) > total * _TENANT_SHARE:
            return False
        pinned: list[bytes] = []
        for key in fresh:
            if not self.blocks.pin(key):
                for one in reversed(pinned):
                    self.blocks.unpin(one)
                return False
            pinned.append(key)
        for key in fresh:
            self._pins[key] = _Pin(until_ns, tenant)
        self._of_tenants[tenant] = self._of_tenants.get(tenant, 0) + len(fresh)
        new = set(fresh)
        for place, key in enumerate(keys):
            pin = self._pins[key]
            if key in new or until_ns > pin.until_ns:
                pin.until_ns = until_ns
                heapq.heappush(self._ends, (until_ns, -place, key))
        self._forget_stale()
        return True

    def expire(self, now_ns: int) -> None:
        """Release expired pins."""
        while self._ends and self._ends[0][0] <= now_ns:
            self._pop()

    def give_up(self, wanted: int = 1, spared: Collection[bytes] = ()) -> int:
        """Unpin up to `wanted` blocks, of the prefixes that expire first. Return how many are evictable now.

        Blocks under the keys `spared` stay pinned, and so do those that running requests also hold.
        """
        most = min(wanted, self.blocks.only_pinned(spared))
        freed = 0
        passed: list[tuple[int, int, bytes]] = []
        while self._ends and freed < most:
            key = self._ends[0][2]
            if key in self._pins and (key in spared or not self.blocks.is_only_pinned(key)):
                passed.append(heapq.heappop(self._ends))
            elif self._pop():
                freed += 1
        for end in passed:
            heapq.heappush(self._ends, end)
        self.given_up += freed
        return freed

    def forget(self, keys: Collection[bytes]) -> None:
        """Unpin blocks before their time ends."""
        for key in keys:
            if key in self._pins:
                self._let_go(key)

    def clear(self) -> None:
        """Unpin all blocks."""
        self.forget(list(self._pins))

    def _pop(self) -> bool:
        until_ns, _, key = heapq.heappop(self._ends)
        pin = self._pins.get(key)
        if pin is None or pin.until_ns != until_ns:
            return False  # it was renewed since
        self._let_go(key)
        return True

    def _let_go(self, key: bytes) -> None:
        pin = self._pins.pop(key)
        self._of_tenants[pin.tenant] -= 1
        if not self._of_tenants[pin.tenant]:
            del self._of_tenants[pin.tenant]
        self.blocks.unpin(key)

    def _forget_stale(self) -> None:
        """Remove outdated entries from the heap if renewals have made it large."""
        if len(self._ends) > 4 * len(self._pins) + 64:
            live = {(pin.until_ns, key) for key, pin in self._pins.items()}
            self._ends = list({end for end in self._ends if (end[0], end[2]) in live})
            heapq.heapify(self._ends)


def pin_prefixes(pins: PinnedPrefixes, choice: Choice, now_ns: int) -> None:
    """Pin the marked prefixes of a request's prompt once they are computed, and record how many of their tokens are
    new.

    Tokens that were cached before count as read instead of written. A prompt's last token is always computed, so its
    block is pinned as soon as the answer fills it, and only if the marked prefix is the whole prompt.
    """
    request = choice.request
    wanted = request.submit.kept_prefixes
    size = pins.blocks.block_size
    if request.has_kept or choice.computed // size < max(min(kept.tokens, choice.prompt) for kept in wanted) // size:
        return
    request.has_kept = True
    known = request.cached_tokens or 0
    for kept in wanted:
        tokens = min(kept.tokens, choice.prompt) // size * size
        until_ns = now_ns + kept.ttl_seconds * _SECOND_NS
        if tokens and pins.keep(choice.keys.keys[: tokens // size], request.submit.tenant, until_ns):
            written = max(tokens - known, 0)
            request.written_tokens[kept.ttl_seconds] = request.written_tokens.get(kept.ttl_seconds, 0) + written
            known = max(known, tokens)
