"""The requests of a rollout as they are read, and the report that comparing them gives.

What computes it is in `rollout_report`, which loads a hundred megabytes: who only reads or shows needs none of that.
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
    """One measure: what each arm had, and how they compare. `None`: not known."""

    measure: str
    of: str  # "arms": two groups of requests; "copies": the same requests, asked of both
    incumbent: float | None
    candidate: float | None
    comparison: Interval | None
    how: str  # what the comparison is: "ratio", "difference" or "share"

    def as_json(self) -> dict[str, object]:
        """Return the values for JSON."""
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
        """Return this as a table shows it."""
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
    """What requests say of a rollout. Of more than a hundred thousand a part is drawn, by their ids."""

    rollout: str
    start: datetime
    end: datetime
    incumbent_requests: int
    candidate_requests: int
    copies: int
    lines: tuple[ReportLine, ...]

    def as_json(self) -> dict[str, object]:
        """Return the values for JSON."""
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
    """The requests of a rollout as they were read, so that they can be compared elsewhere."""

    rollout: str
    start: datetime
    end: datetime
    rows: list[dict[str, object]]


def read_arms(store: StoreClient, rollout: str, start: datetime, end: datetime, tenant: str | None = None) -> ArmsRead:
    """Read what `rollout_report` compares. Raises StoreUnavailable."""
    parameters = {
        "start": int(start.timestamp()),
        "end": int(end.timestamp()) + 1,
        "tenant": tenant,
        "rollout": rollout,
        "row_limit": _MOST_ROWS,
    }
    rows = store.query(query("rollout_requests"), parameters)
    return ArmsRead(rollout, start, end, [dict(row) for row in rows])
