"""The composition of a step as parallel columns, kept small because one is created per step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_NOTHING: Final[list[int]] = []  # shared: a column is replaced, never grown, once others may hold it


class Composition:
    """A step's rows as parallel columns in the order of `keys`. Not a dataclass, because one is created per step."""

    __slots__ = (
        "accepted",
        "cached",
        "context",
        "discarded",
        "drafted",
        "keys",
        "logits",
        "names",
        "number",
        "phases",
        "recompute",
        "scheduled",
        "shared",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.keys = self.scheduled = self.context = self.phases = _NOTHING
        self.logits = self.cached = self.recompute = self.drafted = self.accepted = self.shared = _NOTHING
        self.discarded: frozenset[int] = frozenset()  # keys
        self.names: list[str] = []  # only with drafts, to count the accepted ones

    def note_sampled(self, counts: Mapping[str, int]) -> None:
        """Set `accepted` from the number of tokens that each sequence got: all but one were accepted drafts."""
        self.accepted = [
            max(0, min(drafted, counts.get(name, 1) - 1))
            for name, drafted in zip(self.names, self.drafted, strict=True)
        ]


@dataclass(slots=True)
class Steady:
    """Sequences that decode together in consecutive steps. `step` and `batch` are numbers of the latest one, whose
    tokens are not in `context` yet.
    """

    names: Sequence[str] = ()
    keys: list[int] = field(default_factory=list)
    ones: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)  # tokens of each before the first of these steps
    total: int = 0  # sum of `context`
    shared: list[int] = field(default_factory=list)
    ahead: int = 0  # steps since then
    step: int = 0
    batch: int = 0


class Repeat:
    """A step of sequences that decode together: like `Composition`, but its columns are computed when they are read."""

    __slots__ = ("_ahead", "_steady", "discarded", "number")

    logits = cached = recompute = drafted = accepted = _NOTHING
    names: Final[list[str]] = []

    def __init__(self, number: int, steady: Steady, ahead: int) -> None:
        self.number = number
        self.discarded: frozenset[int] = frozenset()
        self._steady = steady
        self._ahead = ahead

    def follows(self, other: object) -> bool:
        """Return whether it repeats step `other` with one more token for each sequence."""
        return isinstance(other, Repeat) and self._steady is other._steady and self.number == other.number + 1

    def note_sampled(self, counts: Mapping[str, int]) -> None:
        """Do nothing: there are no drafts."""

    @property
    def keys(self) -> list[int]:
        """Return the keys of the sequences."""
        return self._steady.keys

    @property
    def scheduled(self) -> list[int]:
        """Return 1 for each sequence: the number of scheduled tokens."""
        return self._steady.ones

    @property
    def phases(self) -> list[int]:
        """Return DECODE for each sequence."""
        return self._steady.ones

    @property
    def shared(self) -> list[int]:
        """Return the tokens whose reads each sequence saves by sharing a prefix."""
        return self._steady.shared

    @property
    def context(self) -> list[int]:
        """Return each sequence's context length in tokens before the step."""
        ahead = self._ahead
        return [start + ahead for start in self._steady.context]


class SteadyRun:
    """Consecutive steps that are each a `Repeat`, without an object per step."""

    __slots__ = ("_lag", "_steady", "count", "number", "recent")

    def __init__(self, number: int, count: int, steady: Steady) -> None:
        """Create a run of `count` steps from step `number` on, which `steady` already includes."""
        self.number = number  # of the first
        self.count = count
        self.recent: dict[int, Repeat] = {}  # steps whose output may still turn out to be discarded
        self._steady = steady
        self._lag = number + count - 1 - steady.ahead

    def at(self, number: int) -> Repeat:
        """Return one of the steps by its number."""
        return self.recent.get(number) or Repeat(number, self._steady, number - self._lag)

    def drop(self, count: int) -> None:
        """Remove the first `count` steps."""
        self.number += count
        self.count -= count
