"""One key's abuse of one kind, from the first to the last detection."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from algorithms.abuse.detection import Detection, detection_text, remedy
from algorithms.abuse.spec import AbuseAction, AbuseKind

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident. Times are Unix ns. `peak` is the highest count in one window; `facts` are details of the latest
    detection.

    `sightings` is the number of requests above the limit, `throttled` that of the refused ones among them.
    """

    id: str
    gateway: str
    tenant: str
    team: str
    key_id: str
    kind: AbuseKind
    action: AbuseAction
    limit: int
    window_seconds: int
    peak: int
    sightings: int
    throttled: int
    first_at_ns: int
    last_at_ns: int
    is_open: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def begun(
        cls, incident_id: str, gateway: str, tenant: str, team: str, key_id: str, seen: Detection, at_ns: int
    ) -> "Incident":
        """Start an incident with its first detection."""
        return cls(
            id=incident_id,
            gateway=gateway,
            tenant=tenant,
            team=team,
            key_id=key_id,
            kind=seen.kind,
            action=seen.action,
            limit=seen.limit,
            window_seconds=seen.window_seconds,
            peak=seen.observed,
            sightings=1,
            throttled=int(seen.action == "throttle"),
            first_at_ns=at_ns,
            last_at_ns=at_ns,
            facts=dict(seen.facts),
        )

    def seen_again(self, seen: Detection, at_ns: int) -> "Incident":
        """Return the incident with a further detection and the rule's current limits."""
        return replace(
            self,
            action=seen.action,
            limit=seen.limit,
            window_seconds=seen.window_seconds,
            peak=max(self.peak, seen.observed),
            sightings=self.sightings + 1,
            throttled=self.throttled + (seen.action == "throttle"),
            last_at_ns=max(self.last_at_ns, at_ns),
            facts=dict(seen.facts),
        )

    def ended(self) -> "Incident":
        """Return the incident, closed."""
        return replace(self, is_open=False)

    def is_quiet(self, now_ns: int) -> bool:
        """Return whether there was no detection for a whole window of the rule."""
        return now_ns - self.last_at_ns > self.window_seconds * _SECOND_NS

    @property
    def summary(self) -> str:
        """Return one sentence about what was seen."""
        whom = f"key {self.key_id} of {self.tenant}" if self.key_id else f"a caller of {self.tenant} without a key"
        return f"{whom}: {detection_text(self.kind, self.peak, self.limit, self.window_seconds)}"

    def explained(self) -> list[str]:
        """Return sentences: what was seen, what was done, and what ends it."""
        done = f"{self.throttled} of {self.sightings} requests above the limit were refused"
        told = [
            f"{self.summary}.",
            f"{done}." if self.throttled else f"{self.sightings} requests were above the limit; none was refused.",
        ]
        told += [f"{name.replace('_', ' ')}: {_shown(value)}." for name, value in sorted(self.facts.items())]
        told.append(f"To end it: {remedy(self.kind)}.")
        return told


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
