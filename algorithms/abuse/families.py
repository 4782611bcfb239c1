"""Groups a key's nearly identical prompts into families: a bounded number of families, each of bounded size."""

from collections import deque
from typing import Final

from algorithms.abuse.sketch import Sketch, index_of, similarity
from algorithms.abuse.window_count import WindowCount

MOST_FAMILIES: Final = 16  # per key; a new one replaces one without recent members, or the smallest
_MOST_KNOWN: Final = 16  # latest members per family, to tell repetitions from variants


class Family:
    """Prompts similar to the first of them. `members` counts all in the window, `variants` those that are not
    repetitions.

    `size` is the number of members since the beginning, `latest_ns` the time of the last one.
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
        """Return whether exactly this prompt is among the latest members."""
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
    """The families of one key's prompts, by minimum similarity to each family's first prompt."""

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
        """Return the family that a prompt is most similar to; `None` if none is similar enough."""
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
        """Start a family with a prompt that is in none, replacing another family if there is no room."""
        if len(self._families) >= self._most:
            self._drop(self._least(now_ns))
        family = Family(sketch, self._window_seconds)
        self._families.append(family)
        for entry in index_of(sketch):
            self._index.setdefault(entry, []).append(family)
        return family

    def _least(self, now_ns: int) -> Family:
        """Return the first family without a member for a window, otherwise the smallest, the oldest of these."""
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
