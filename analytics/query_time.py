"""The time of a query, excluded from equality, so that results can be cached by the other parameters."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class QueryTime:
    """A time that compares equal to every other, so that two queries that differ only in it are the same cache key."""

    moment: datetime = field(compare=False)
