"""Creates the payers of a run: tenants with a team, a project and a temporary key each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from contracts.errors import ConfigurationError, TollkeeperError
from tollkeeper.control_client import ControlClient
from tollkeeper.replay.trace import Trace

MAX_TENANTS: Final = 500
DEFAULT_TENANTS: Final = 3
_GRACE: Final = timedelta(hours=1)
_ORGANISATIONS: Final = (  # tenant, its team, its project
    ("acme", "search", "ranking"),
    ("globex", "support", "replies"),
    ("initech", "finance", "reports"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """The ids of a tenant, a team and a project."""

    tenant: str
    team: str
    project: str


@dataclass(frozen=True, slots=True)
class Payer:
    """A tenant, team and project, with a key."""

    place: Place
    key_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assigns requests to places (tenants): by client if the trace has clients, else in turn."""

    places: tuple[Place, ...]
    clients: tuple[str, ...] = ()

    @classmethod
    def of(cls, trace: Trace, tenants: int | None) -> "Assignment":
        """Return an assignment to `tenants` places; if not given, one per client of the trace, or three.

        Raises ConfigurationError for a number below 1 or above 500.
        """
        count = tenants if tenants is not None else len(trace.clients) or DEFAULT_TENANTS
        if not 1 <= count <= MAX_TENANTS:
            raise ConfigurationError(f"a run can have 1 to {MAX_TENANTS} tenants, not {count}; choose with --tenants")
        if tenants is None and trace.clients:
            return cls(tuple(_place_of_client(client) for client in trace.clients), trace.clients)
        return cls(tuple(_place(number) for number in range(count)), trace.clients)

    def index(self, number: int, client: str) -> int:
        """Return the index of a request's place: by its client, or in turn by `number`, its position in the trace."""
        turn = self.clients.index(client) if client in self.clients else number
        return turn % len(self.places)


def create_payers(
    control: ControlClient, places: Sequence[Place], model: str, run_id: str, now: datetime, lasts_seconds: float
) -> list[Payer]:
    """Create missing tenants, teams and projects, and a key in each that is restricted to this model.

    The keys expire an hour after the run's expected end, in case the run is killed. `now` is in UTC. Raises the control
    plane's error if it refuses; keys created before are then revoked.
    """
    expires_at = (now + timedelta(seconds=lasts_seconds) + _GRACE).isoformat()
    known = {str(row["id"]) for row in control.get_all("/v1/tenants")}
    payers: list[Payer] = []
    try:
        for place in places:
            _create_missing(control, place, known)
            wanted = {
                "name": f"replay {run_id}"[:100],
                "team": place.team,
                "project": place.project,
                "models": [model],
                "expires_at": expires_at,
            }
            made = control.post(f"/v1/tenants/{place.tenant}/keys", wanted)
            payers.append(Payer(place, str(made["id"]), str(made["secret"])))
    except BaseException:  # also Ctrl-C: the keys must be revoked in any case
        revoke_payers(control, payers)
        raise
    return payers


def revoke_payers(control: ControlClient, payers: Sequence[Payer]) -> str:
    """Revoke the run's keys. Return a warning if that failed, else "" (the run's results are valid in any case)."""
    try:
        for payer in payers:
            control.delete(f"/v1/tenants/{payer.place.tenant}/keys/{payer.key_id}")
    except TollkeeperError as error:
        return f"the run's keys were not all revoked, they expire by themselves: {error.message}"
    return ""


def _create_missing(control: ControlClient, place: Place, known_tenants: set[str]) -> None:
    teams = f"/v1/tenants/{place.tenant}/teams"
    projects = f"{teams}/{place.team}/projects"
    if place.tenant not in known_tenants:
        _create(control, "/v1/tenants", place.tenant)
        known_tenants.add(place.tenant)
    if place.team not in {row["id"] for row in control.get_all(teams)}:
        _create(control, teams, place.team)
    if place.project not in {row["id"] for row in control.get_all(projects)}:
        _create(control, projects, place.project)


def _create(control: ControlClient, path: str, slug: str) -> None:
    control.post(path, {"id": slug, "name": slug.capitalize()})


def _place(number: int) -> Place:
    if number < len(_ORGANISATIONS):
        return Place(*_ORGANISATIONS[number])
    return Place(f"tenant-{number + 1}", "core", "main")


def _place_of_client(client: str) -> Place:
    slug = re.sub(r"[^a-z0-9]+", "-", client.lower()).strip("-")
    return Place(f"client-{slug or 'unnamed'}", "core", "main")
