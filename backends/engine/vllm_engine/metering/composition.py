"""The composition of a step as parallel columns, kept small because one is created per step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_NOTHING: Final[list[int]] = []  # shared: a column is replaced, never grown, once others may hold it


class Composition:
    """A step's rows as parallel columns, in the order of `keys`; made for every step, so it is no dataclass."""

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
        self.names: list[str] = []  # only with drafts, to learn what came of them

    def note_sampled(self, counts: Mapping[str, int]) -> None:
        """Learn how many tokens each sequence of a step with drafts was given: all but one were accepted drafts."""
        self.accepted = [
            max(0, min(drafted, counts.get(name, 1) - 1))
            for name, drafted in zip(self.names, self.drafted, strict=True)
        ]


@dataclass(slots=True)
class Steady:
    """Sequences that decode together, and the last batch in which they did; `step` is 0 if none is untold."""

    names: Sequence[str] = ()
    keys: list[int] = field(default_factory=list)
    ones: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)  # of the step before the first of theirs
    total: int = 0  # of it
    shared: list[int] = field(default_factory=list)
    ahead: int = 0  # how many steps there have been since
    step: int = 0
    batch: int = 0


class Repeat:
    """A step of sequences that decode together: a `Composition` whose columns are made where they are asked for."""

    __slots__ = ("_ahead", "_steady", "discarded", "number")

    logits = cached = recompute = drafted = accepted = _NOTHING
    names: Final[list[str]] = []

    def __init__(self, number: int, steady: Steady, ahead: int) -> None:
        self.number = number
        self.discarded: frozenset[int] = frozenset()
        self._steady = steady
        self._ahead = ahead

    def follows(self, other: object) -> bool:
        """Return whether it has the rows of another step, each a token further."""
        return isinstance(other, Repeat) and self._steady is other._steady and self.number == other.number + 1

    def note_sampled(self, counts: Mapping[str, int]) -> None:
        """Learn nothing: there are no drafts."""

    @property
    def keys(self) -> list[int]:
        """Return whose rows they are."""
        return self._steady.keys

    @property
    def scheduled(self) -> list[int]:
        """Return one token for each."""
        return self._steady.ones

    @property
    def phases(self) -> list[int]:
        """Return a decode for each."""
        return self._steady.ones

    @property
    def shared(self) -> list[int]:
        """Return what is saved by sharing."""
        return self._steady.shared

    @property
    def context(self) -> list[int]:
        """Return how far each had come."""
        ahead = self._ahead
        return [start + ahead for start in self._steady.context]


class SteadyRun:
    """Steps one after the other that are each a `Repeat`, most of which nobody will ask for."""

    __slots__ = ("_lag", "_steady", "count", "number", "recent")

    def __init__(self, number: int, count: int, steady: Steady) -> None:
        """`steady` has heard of all of them."""
        self.number = number  # of the first
        self.count = count
        self.recent: dict[int, Repeat] = {}  # those that may yet be found to be unwanted
        self._steady = steady
        self._lag = number + count - 1 - steady.ahead

    def at(self, number: int) -> Repeat:
        """Return one of the steps by its number."""
        return self.recent.get(number) or Repeat(number, self._steady, number - self._lag)

    def drop(self, count: int) -> None:
        """Forget the first ones."""
        self.number += count
        self.count -= count
