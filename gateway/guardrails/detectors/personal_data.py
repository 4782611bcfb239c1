"""Finds personal data: each kind has regular expressions, and a check for what they match."""

from collections.abc import Callable, Sequence

import msgspec

from contracts.guardrails.finding import Finding
from contracts.guardrails.places import Places
from gateway.guardrails.screening.expression import Expression

Spans = list[tuple[int, int]]


class Kind(msgspec.Struct, frozen=True):
    """One kind of data: its regular expressions, and the check for a match."""

    name: str
    patterns: tuple[str, ...]
    run: str  # what is looked at at once; a match of the patterns, or several that touch
    spans: Callable[[str], Spans]


class PersonalData:
    """Finds personal data of some kinds."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.patterns = tuple(pattern for kind in kinds for pattern in kind.patterns)
        self._kinds = [(kind, Expression(kind.run)) for kind in kinds]
        self._of_pattern = [number for number, kind in enumerate(kinds) for _ in kind.patterns]

    def find(self, text: str, role: str, matching: Sequence[int] | None = None) -> Sequence[Finding]:
        """Find data of these kinds. If two kinds match at one place, the first kind is reported."""
        found: list[Finding] = []
        places = Places()
        numbers = self._of_pattern if matching is None else [self._of_pattern[pattern] for pattern in matching]
        for number in dict.fromkeys(numbers):
            kind, expression = self._kinds[number]
            for start, end in expression.spans(text):
                if places.holds(start, end):
                    continue
                for first, last in kind.spans(text[start:end]):
                    if places.take(start + first, start + last):
                        found.append(Finding(start + first, start + last, kind.name))
        return sorted(found, key=lambda one: one.start)
