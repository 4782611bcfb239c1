"""The time of a query, separate from its parameters, so that answers can be cached by parameters."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class AskedAt:
    """A moment that is equal to every other: two questions that differ in it alone are the same question."""

    moment: datetime = field(compare=False)
