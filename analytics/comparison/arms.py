"""Reads the requests of a rollout, and defines the report of their comparison.

The computation is in `rollout_report`, which loads a hundred megabytes of libraries that readers do not need.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from analytics.comparison.interval import Interval
from analytics.queries import query
from backends.store.client import StoreClient

_MOST_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One measure: the value of each arm, and their comparison. `None`: unknown."""

    measure: str
    of: str  # "arms": two groups of requests; "copies": the same requests, sent to both
    incumbent: float | None
    candidate: float | None
    comparison: Interval | None
    how: str  # kind of comparison: "ratio", "difference" or "share"

    def as_json(self) -> dict[str, object]:
        """Return the values as JSON types."""
        told = None if self.comparison is None else self.comparison.as_json()
        return {
            "measure": self.measure,
            "of": self.of,
            "incumbent": self.incumbent,
            "candidate": self.candidate,
            "how": self.how,
            "comparison": told,
        }

    def as_row(self) -> dict[str, object]:
        """Return the line as a table row."""
        found = self.comparison
        return {
            "measure": self.measure,
            "of": self.of,
            "incumbent": self.incumbent,
            "candidate": self.candidate,
            "comparison": None if found is None else f"{self.how} {found.value:.4g}",
            "95 %": None if found is None else f"{found.low:.4g} to {found.high:.4g}",
        }


@dataclass(frozen=True, slots=True)
class RolloutReport:
    """The comparison of a rollout's arms. Of more than 100,000 requests a sample is used, selected by id."""

    rollout: str
    start: datetime
    end: datetime
    incumbent_requests: int
    candidate_requests: int
    copies: int
    lines: tuple[ReportLine, ...]

    def as_json(self) -> dict[str, object]:
        """Return the values as JSON types."""
        return {
            "rollout": self.rollout,
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "incumbent_requests": self.incumbent_requests,
            "candidate_requests": self.candidate_requests,
            "copies": self.copies,
            "lines": [line.as_json() for line in self.lines],
        }


@dataclass(frozen=True, slots=True)
class ArmsRead:
    """The requests of a rollout, read for a comparison in another process."""

    rollout: str
    start: datetime
    end: datetime
    rows: list[dict[str, object]]


def read_arms(store: StoreClient, rollout: str, start: datetime, end: datetime, tenant: str | None = None) -> ArmsRead:
    """Read the requests that `rollout_report` compares. Raises StoreUnavailable."""
    parameters = {
        "start": int(start.timestamp()),
        "end": int(end.timestamp()) + 1,
        "tenant": tenant,
        "rollout": rollout,
        "row_limit": _MOST_ROWS,
    }
    rows = store.query(query("rollout_requests"), parameters)
    return ArmsRead(rollout, start, end, [dict(row) for row in rows])
