"""Prompts of one key that are nearly the same, counted together: a bounded number of families, each of bounded size."""

from collections import deque
from typing import Final

from algorithms.abuse.sketch import Sketch, index_of, similarity
from algorithms.abuse.window_count import WindowCount

MOST_FAMILIES: Final = 16  # of one key; a new one takes the place of one without a member lately, or the smallest
_MOST_KNOWN: Final = 16  # of a family's latest members, by which repetitions are told from variants


class Family:
    """Prompts that are like the first of them. `members` counts all, `variants` those that did not come lately.

    `size` is how many there were all told, `latest_ns` when the last one was.
    """

    __slots__ = ("sketch", "members", "variants", "size", "latest_ns", "_known")

    def __init__(self, sketch: Sketch, window_seconds: float) -> None:
        self.sketch = sketch
        self.members = WindowCount(window_seconds)
        self.variants = WindowCount(window_seconds)
        self.size = 0
        self.latest_ns = 0
        self._known: deque[int] = deque(maxlen=_MOST_KNOWN)

    def knows(self, text_hash: int) -> bool:
        """Return whether a prompt, word for word, is one of the latest."""
        return text_hash in self._known

    def add(self, text_hash: int, now_ns: int) -> None:
        """Count a member."""
        self.members.add(now_ns)
        self.size += 1
        self.latest_ns = now_ns
        if not self.knows(text_hash):
            self._known.append(text_hash)
            self.variants.add(now_ns)


class Families:
    """The families of one key's prompts, by a least similarity to each family's first."""

    def __init__(self, least_similarity: float, window_seconds: float, most: int = MOST_FAMILIES) -> None:
        self._least_similarity = least_similarity
        self._window_seconds = window_seconds
        self._window_ns = int(window_seconds * 1_000_000_000)
        self._most = most
        self._families: list[Family] = []
        self._index: dict[int, list[Family]] = {}

    def __len__(self) -> int:
        return len(self._families)

    def find(self, sketch: Sketch) -> Family | None:
        """Return the family that a prompt is most like, where it is alike enough."""
        best: Family | None = None
        best_similarity = 0.0
        seen: set[int] = set()
        for entry in index_of(sketch):
            for family in self._index.get(entry, ()):
                if id(family) in seen:
                    continue
                seen.add(id(family))
                found = similarity(sketch, family.sketch)
                if found >= self._least_similarity and found > best_similarity:
                    best, best_similarity = family, found
        return best

    def begin(self, sketch: Sketch, now_ns: int) -> Family:
        """Start a family with a prompt that is in none, in the place of the smallest if there is no room."""
        if len(self._families) >= self._most:
            self._drop(self._least(now_ns))
        family = Family(sketch, self._window_seconds)
        self._families.append(family)
        for entry in index_of(sketch):
            self._index.setdefault(entry, []).append(family)
        return family

    def _least(self, now_ns: int) -> Family:
        """Return the first that has had no member for a window, else the one with the fewest, the oldest of these."""
        least = self._families[0]
        for family in self._families:
            if now_ns - family.latest_ns > self._window_ns:
                return family
            if family.size < least.size:
                least = family
        return least

    def _drop(self, family: Family) -> None:
        self._families.remove(family)
        for entry in index_of(family.sketch):
            left = [each for each in self._index[entry] if each is not family]
            if left:
                self._index[entry] = left
            else:
                del self._index[entry]
