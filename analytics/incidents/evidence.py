"""Evidence on an incident: failures by common attributes, latency by target, engines' last steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import Row, StoreClient

_MOST_GROUPS: Final = 20_000
_MOST_TARGETS: Final = 500
_SLOWER_NS: Final = 200e6
_QUIET_MINUTES: Final = 3  # minutes without such a failure end a run of failures


@dataclass(frozen=True, slots=True)
class Group:
    """Requests of one minute with the same outcome and attributes. `upstream_status` is `None` without a response."""

    minute: datetime
    outcome: str
    error_code: str
    upstream_status: int | None
    upstream_error: str
    upstream_message: str
    pool: str
    target: str
    model: str
    tenant: str
    key_id: str
    rollout: str
    arm: str
    limit: str
    count: int


@dataclass(frozen=True, slots=True)
class TargetTimes:
    """p95 time to first token (or of the whole answer), in ns, of one target or arm, before and since a time."""

    pool: str
    target: str
    rollout: str
    arm: str
    before: int
    before_p95_ns: float
    since: int
    since_p95_ns: float


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's last step, and its last load or end, in the range."""

    replica: str
    model: str
    last_step_at: datetime
    loaded_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The store's evidence on an incident. `began` is when its failures began, else the caller's time."""

    period: Period
    began: datetime
    groups: tuple[Group, ...] = ()
    times: tuple[TargetTimes, ...] = ()
    engines: tuple[Engine, ...] = field(default=())

    @property
    def requests(self) -> int:
        """Return the number of requests since the incident began."""
        return sum(one.count for one in self.groups if one.minute >= self.first_minute)

    @property
    def first_minute(self) -> datetime:
        """Return the minute in which the incident began."""
        return self.began.replace(second=0, microsecond=0)

    def since(self, outcome: str) -> tuple[Group, ...]:
        """Return the groups of an outcome since the incident began."""
        return tuple(one for one in self.groups if one.outcome == outcome and one.minute >= self.first_minute)


def read_evidence(
    store: StoreClient,
    period: Period,
    noticed: datetime,
    tenant: str | None = None,
    team: str | None = None,
    model: str | None = None,
) -> Evidence:
    """Read the evidence of a period. `noticed` is when the alert opened; the incident began then or earlier.

    Raises StoreUnavailable.
    """
    bounds: dict[str, object] = {"start": period.start_s, "end": period.end_s}
    about: dict[str, object] = {"tenant": tenant, "team": team, "model": model}
    rows = store.query(query("incident_groups"), {**bounds, **about, "row_limit": _MOST_GROUPS})
    groups = tuple(map(_group, rows))
    began = failing_since(groups, noticed)
    if began is None:
        minutes = store.query(query("incident_timeline"), {**bounds, **about, "step": 60, "origin": 0})
        began = slow_since(
            {
                datetime.fromtimestamp(number_of(row["step_start"]), UTC): _real(row["p95_ns"])
                for row in minutes
                if number_of(row["answered_count"])
            }
        )
    began = began or noticed
    turn = {"turn": int(began.timestamp()), "row_limit": _MOST_TARGETS}
    times = tuple(_times(row) for row in store.query(query("incident_times"), {**bounds, **about, **turn}))
    engines: tuple[Engine, ...] = ()
    if tenant is None and team is None:  # engines belong to the installation
        rows = store.query(query("incident_engines"), {**bounds, "row_limit": _MOST_TARGETS})
        engines = tuple(map(_engine, rows))
    return Evidence(period, began, groups, times, engines)


def failing_since(groups: tuple[Group, ...], noticed: datetime) -> datetime | None:
    """Return the first minute of the run of failures or refusals around `noticed`; `None` if there is none.

    A run ends after three minutes without any. Only its most frequent outcome counts, failures or refusals.
    """
    by_minute: dict[str, dict[datetime, int]] = {"error": {}, "rejected": {}}
    for one in groups:
        if one.outcome in by_minute:
            minutes = by_minute[one.outcome]
            minutes[one.minute] = minutes.get(one.minute, 0) + one.count
    found = max(by_minute.values(), key=lambda minutes: sum(minutes.values()))
    if not found:
        return None
    before = [minute for minute in found if minute <= noticed]
    first = place = max(before) if before else min(found)
    while first - place <= timedelta(minutes=_QUIET_MINUTES + 1) and place >= min(found):
        first = place if place in found else first
        place -= timedelta(minutes=1)
    return first


def slow_since(p95_ns: Mapping[datetime, float]) -> datetime | None:
    """Return the first minute of the latest run of slow minutes; `None` if no minute is slow.

    A minute is slow if its p95 is at least twice the lower quartile of all minutes' p95, and at least 200 ms above that
    quartile. Up to 3 other minutes do not end a run.
    """
    if not p95_ns:
        return None
    usual = sorted(p95_ns.values())[len(p95_ns) // 4]
    slow = sorted(minute for minute, p95 in p95_ns.items() if p95 >= max(2 * usual, usual + _SLOWER_NS))
    first = slow[-1] if slow else None
    for minute in reversed(slow):
        if first is None or first - minute > timedelta(minutes=_QUIET_MINUTES + 1):
            break
        first = minute
    return first


def _group(row: Row) -> Group:
    status = row["upstream_code"]
    return Group(
        _moment(row["minute"]),
        text_of(row["outcome_label"]),
        text_of(row["error_label"]),
        None if status is None else number_of(status),
        text_of(row["upstream_kind"]),
        text_of(row["upstream_said"]),
        text_of(row["pool_label"]),
        text_of(row["replica_label"]),
        text_of(row["model_label"]),
        text_of(row["tenant_label"]),
        text_of(row["key_label"]),
        text_of(row["rollout_label"]),
        text_of(row["arm_label"]),
        text_of(row["limit_label"]),
        number_of(row["request_count"]),
    )


def _times(row: Row) -> TargetTimes:
    return TargetTimes(
        text_of(row["pool_label"]),
        text_of(row["replica_label"]),
        text_of(row["rollout_label"]),
        text_of(row["arm_label"]),
        number_of(row["before_count"]),
        _real(row["before_p95"]),
        number_of(row["since_count"]),
        _real(row["since_p95"]),
    )


def _engine(row: Row) -> Engine:
    def known(name: str) -> datetime | None:
        moment = _moment(row[name])
        return moment if moment.year > 1970 else None

    return Engine(
        text_of(row["replica_label"]),
        text_of(row["model_label"]),
        _moment(row["last_step_at"]),
        known("loaded_at"),
        known("ended_at"),
    )


def _moment(value: object) -> datetime:
    assert isinstance(value, datetime)  # of a DateTime column
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _real(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else 0.0
    return 0.0 if number != number else number
