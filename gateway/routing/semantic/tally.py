"""Accuracy, abstention and confusion of classifications."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

NONE_WORD: Final = "(none)"  # of what is not an intent, and of what was left to the default


class Tally(msgspec.Struct, frozen=True):
    """`pairs` counts (what it was, what it was read as); `None` is none of the intents, and abstention."""

    pairs: dict[tuple[str | None, str | None], int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str | None, str | None]]) -> "Tally":
        """Count them."""
        return cls(dict(Counter(pairs)))

    @property
    def count(self) -> int:
        """Return how many there are."""
        return sum(self.pairs.values())

    @property
    def accuracy(self) -> float | None:
        """Return the share that was read right, which for what is not an intent is abstention; `None` of nothing."""
        return self._share(sum(count for (was, read), count in self.pairs.items() if was == read), self.count)

    @property
    def abstention(self) -> float | None:
        """Return the share that was read as nothing; `None` of nothing."""
        return self._share(sum(count for (_, read), count in self.pairs.items() if read is None), self.count)

    @property
    def precision(self) -> float | None:
        """Return the share that was right of what was read as something; `None` if nothing was."""
        read = sum(count for (_, read), count in self.pairs.items() if read is not None)
        return self._share(sum(count for (was, read), count in self.pairs.items() if was == read is not None), read)

    def confusion(self, names: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return how often each name, and none, was read as which intent."""
        every = [*names, None]
        return {
            was or NONE_WORD: {read or NONE_WORD: self.pairs.get((was, read), 0) for read in every} for was in every
        }

    @staticmethod
    def _share(part: int, whole: int) -> float | None:
        return part / whole if whole else None
