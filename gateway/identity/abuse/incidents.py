"""Current abuse incidents at this gateway: one per key and kind."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from algorithms.abuse.detection import Detection
from algorithms.abuse.incident import Incident
from algorithms.abuse.spec import AbuseKind

_MOST_OPEN: Final = 1000  # incidents; of more the one that was quiet for longest ends
_MOST_UNTOLD: Final = 2000  # that ended and wait to be published; beyond, the oldest are counted and left out


@dataclass(frozen=True, slots=True)
class Suspect:
    """The payer of the requests that were detected."""

    tenant: str
    key_id: str
    team: str = ""


class IncidentBook:
    """Holds open incidents, and the changes since the last report. Not thread-safe. `new_id` creates UUIDv7s."""

    def __init__(self, gateway: str, new_id: Callable[[int], UUID]) -> None:
        self._gateway = gateway
        self._new_id = new_id
        self._open: OrderedDict[tuple[Suspect, AbuseKind], Incident] = OrderedDict()  # the latest seen last
        self._changed: dict[str, Incident] = {}
        self.sightings = 0
        self.throttled = 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._open)

    def note(self, suspect: Suspect, detection: Detection, at_ns: int) -> bool:
        """Record a detection; return whether it starts an incident. `at_ns` is Unix time."""
        self.sightings += 1
        self.throttled += detection.action == "throttle"
        place = (suspect, detection.kind)
        known = self._open.pop(place, None)
        if known is not None and known.is_quiet(at_ns):
            self._change(known.ended())
            known = None
        if known is None:
            incident = Incident.begun(
                str(self._new_id(at_ns)), self._gateway, suspect.tenant, suspect.team, suspect.key_id, detection, at_ns
            )
        else:
            incident = known.seen_again(detection, at_ns)
        self._open[place] = incident
        self._change(incident)
        while len(self._open) > _MOST_OPEN:
            _, first = self._open.popitem(last=False)
            self._change(first.ended())
        return known is None

    def end_quiet(self, now_ns: int) -> None:
        """End the incidents without a further detection within their rule's window."""
        quiet = [place for place, incident in self._open.items() if incident.is_quiet(now_ns)]
        for place in quiet:
            self._change(self._open.pop(place).ended())

    def changes(self) -> Sequence[Incident]:
        """Return the incidents that changed since the last call. If they cannot be reported, give them to
        `put_back`.
        """
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def put_back(self, incidents: Sequence[Incident]) -> None:
        """Keep incidents that could not be reported, unless newer states of them are known."""
        for incident in incidents:
            if incident.id not in self._changed:
                self._change(incident)

    def standing(self) -> dict[str, int]:
        """Return the state that GET /ready shows."""
        return {"open": len(self._open), "sightings": self.sightings, "throttled": self.throttled}

    def _change(self, incident: Incident) -> None:
        self._changed[incident.id] = incident
        while len(self._changed) > _MOST_UNTOLD:
            del self._changed[next(iter(self._changed))]
            self.left_out += 1
