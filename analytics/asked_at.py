"""When a question is asked, apart from what it asks: so that its answer can be kept from one moment to the next."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class AskedAt:
    """A moment that is equal to every other: two questions that differ in it alone are the same question."""

    moment: datetime = field(compare=False)
