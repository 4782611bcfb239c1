"""Accuracy, abstention and confusion of classifications."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

NONE_WORD: Final = "(none)"  # label of "no intent", and of an abstention


class Tally(msgspec.Struct, frozen=True):
    """`pairs` counts (true class, predicted class); `None` is "no intent", and an abstention."""

    pairs: dict[tuple[str | None, str | None], int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str | None, str | None]]) -> "Tally":
        """Count pairs."""
        return cls(dict(Counter(pairs)))

    @property
    def count(self) -> int:
        """Return the number of classifications."""
        return sum(self.pairs.values())

    @property
    def accuracy(self) -> float | None:
        """Return the share classified correctly, where abstention is correct for no intent; `None` without any."""
        return self._share(sum(count for (was, read), count in self.pairs.items() if was == read), self.count)

    @property
    def abstention(self) -> float | None:
        """Return the share of abstentions; `None` without any classification."""
        return self._share(sum(count for (_, read), count in self.pairs.items() if read is None), self.count)

    @property
    def precision(self) -> float | None:
        """Return the share of correct classifications among those that did not abstain; `None` if all did."""
        read = sum(count for (_, read), count in self.pairs.items() if read is not None)
        return self._share(sum(count for (was, read), count in self.pairs.items() if was == read is not None), read)

    def confusion(self, names: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return how often each class, and none, was classified as which intent."""
        every = [*names, None]
        return {
            was or NONE_WORD: {read or NONE_WORD: self.pairs.get((was, read), 0) for read in every} for was in every
        }

    @staticmethod
    def _share(part: int, whole: int) -> float | None:
        return part / whole if whole else None
