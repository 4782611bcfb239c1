"""Finds the most frequent prompt prefixes, so that a new engine can compute them into its cache before it serves.

Kept in memory only, while the model is loaded, because they are users' text. Counted by "space saving" (Metwally and
others, 2005): of at most `capacity` prefixes, the rarest is replaced by a new one.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

CAPACITY: Final = 64
LENGTHS: Final = (256, 1024, 4096)  # tokens
_TYPE: Final = "I"

_Key: TypeAlias = tuple[bytes, str, str]  # token ids packed as bytes, which hash and compare fast


@dataclass(frozen=True, slots=True)
class Prefix:
    """The start of a prompt, with the adapter and cache salt under which it is cached."""

    token_ids: tuple[int, ...]
    adapter: str = ""
    cache_salt: str = ""


@dataclass(slots=True)
class HotPrefixes:
    """Counts prompt prefixes of a few lengths. Prompts shorter than the shortest length are not counted."""

    capacity: int = CAPACITY
    lengths: tuple[int, ...] = LENGTHS
    _counts: dict[_Key, int] = field(default_factory=dict)

    def see(self, token_ids: Sequence[int], adapter: str = "", cache_salt: str = "") -> None:
        """Count a prompt: 8 us for 512 tokens, 65 us for 4,096 and more."""
        if len(token_ids) < self.lengths[0]:
            return
        try:
            longest = array(_TYPE, token_ids[: self.lengths[-1]])
        except OverflowError:  # an invalid token id: the engine refuses the request
            return
        packed = longest.tobytes()
        for length in self.lengths:
            if length > len(longest):
                break
            self._count((packed[: length * longest.itemsize], adapter, cache_salt))

    def hottest(self, most: int) -> list[Prefix]:
        """Return at most `most` prefixes, most tokens saved first, without those seen once and those that are part of
        another.
        """
        worth = [(key, (count - 1) * len(key[0])) for key, count in self._counts.items() if count > 1]
        found: list[_Key] = []
        for key, _ in sorted(worth, key=lambda one: (-one[1], -len(one[0][0]))):
            if len(found) == most:
                break
            if not any(_begins(other, key) for other in found):
                found = [other for other in found if not _begins(key, other)]
                found.append(key)
        return [Prefix(tuple(array(_TYPE, packed)), adapter, salt) for packed, adapter, salt in found]

    def _count(self, key: _Key) -> None:
        count = self._counts.get(key)
        if count is None:
            count = 0
            if len(self._counts) >= self.capacity:
                count = self._counts.pop(
                    min(self._counts, key=self._counts.__getitem__)
                )  # it may have been seen before
        self._counts[key] = count + 1


def _begins(whole: _Key, beginning: _Key) -> bool:
    return whole[1:] == beginning[1:] and whole[0].startswith(beginning[0])
