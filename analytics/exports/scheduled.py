"""Scheduled exports: every day's costs as a FOCUS file, written once when the day is over.

`exports.jsonl` beside the files lists what was written, so that a file that was fetched and removed is not written
again. A day whose sums changed later (by records that arrived late) is written again under another name, and its line
names the file that it replaces.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from analytics.cost.periods import split
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.exports.billing import load_billing
from analytics.exports.files import write_csv, write_parquet
from analytics.exports.focus_rules import focus_faults
from analytics.exports.usage_export import LEVELS, charges_in, usage_export
from analytics.scope import Period
from backends.control.database import ControlDatabase
from backends.control.leases import give_back, take_lease
from backends.control.prices import load_cards
from backends.store.client import StoreClient
from contracts.errors import ConfigurationError, TollkeeperError

_log = logging.getLogger(__name__)

INDEX: Final = "exports.jsonl"
LEASE: Final = "exports"
_LEASE_LASTS: Final = timedelta(minutes=15)
_MOST_DAYS: Final = 31  # days to catch up with after a pause
_LATE_DAYS: Final = 3  # days whose records may still arrive
_FORMATS: Final = {"csv": write_csv, "parquet": write_parquet}


class InvalidExport(TollkeeperError):
    """A dataset violates its format's rules and is not exported."""

    code = "invalid_export"


class ExportsLeftOut(TollkeeperError):
    """Some days could not be exported and are retried; all others were exported."""

    code = "exports_left_out"


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Directory, file format and time zone of exports, and the delay after which a day counts as complete."""

    directory: Path
    form: str = "csv"
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    settles_after: timedelta = timedelta(hours=1)
    issuer: str = "Tollkeeper"

    def __post_init__(self) -> None:
        if self.form not in _FORMATS:
            raise ConfigurationError(f"{self.form!r} is not a form of an export; choose one of {', '.join(_FORMATS)}")


@dataclass(frozen=True, slots=True)
class Exported:
    """One line of the index: a day's file, its contents, and the file that it replaces, if any."""

    day: str
    file: str
    rows: int
    requests: int
    cost_pico_usd: int
    unpriced_requests: int
    sha256: str
    written_at: str
    replaces: str = ""


class ScheduledExports:
    """Writes exports that are due. One thread at a time; one process at a time, by a lease."""

    def __init__(
        self,
        database: ControlDatabase,
        store: StoreClient,
        holder: str,
        plan: ExportPlan,
        now: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._store = store
        self._holder = holder
        self._plan = plan
        self._now = now

    def write_due(self) -> int:
        """Write complete days that are not yet written or have changed; return the number of files written.

        Raises ConfigurationError if the directory is not writable, ControlUnavailable, and, once all others are
        written, ExportsLeftOut with the days that failed.
        """
        now = self._now()
        with self._database.session() as session:
            lease = take_lease(session, LEASE, self._holder, now, _LEASE_LASTS)
        if lease is None:
            return 0
        try:
            known = self._index()
            return self._write_all(known, now)
        except OSError as error:
            raise ConfigurationError(
                f"exports cannot be written to {self._plan.directory}: {error.strerror} (TOLLKEEPER_EXPORT_DIRECTORY)"
            ) from error
        finally:
            with self._database.session() as session:
                give_back(session, lease, now)

    def _write_all(self, known: dict[str, Exported], now: datetime) -> int:
        written, faults = 0, {}
        for day in self._days(known, now):
            try:
                written += self._write_if_due(day, known, now)
            except TollkeeperError as error:
                faults[day] = error
        if faults:
            first = next(iter(faults.values()))
            raise ExportsLeftOut(
                f"the exports of {', '.join(map(str, faults))} are not written and are tried again; first: "
                f"{first.message}"
            ) from first
        return written

    def _days(self, known: dict[str, Exported], now: datetime) -> Iterable[date]:
        """Return the complete days to check: those not written since the first, and the last few."""
        last = (now - self._plan.settles_after).astimezone(self._plan.zone).date() - timedelta(days=1)
        first = min((date.fromisoformat(day) for day in known), default=last)
        count = min((last - first).days + 1, _MOST_DAYS)
        days = [last - timedelta(days=number) for number in range(count)]
        return sorted(day for number, day in enumerate(days) if number < _LATE_DAYS or day.isoformat() not in known)

    def _write_if_due(self, day: date, known: dict[str, Exported], now: datetime) -> bool:
        period = self._period(day)
        total = cost_report(self._store, CostQuestion(period.start, period.end, asked_at=now)).total
        before = known.get(day.isoformat())
        sums = (total.requests, total.priced_pico_usd, total.unpriced_requests)
        if before is not None and sums == (before.requests, before.cost_pico_usd, before.unpriced_requests):
            return False
        name, rows, digest = self._write(day, period, now, revision=0 if before is None else _revision(before) + 1)
        written = now.astimezone(UTC).isoformat()
        entry = Exported(day.isoformat(), name, rows, *sums, digest, written, before.file if before else "")
        self._append(json.dumps(asdict(entry)))
        known[entry.day] = entry
        _log.info("export_written", extra={"file": name, "rows": rows})
        return True

    def _write(self, day: date, period: Period, now: datetime, *, revision: int) -> tuple[str, int, str]:
        """Write a day's file atomically; return its name, number of rows and SHA-256 digest."""
        plan = self._plan
        with self._database.session() as session:
            cards, billing = load_cards(session), load_billing(session, now)
        question = CostQuestion(period.start, period.end, LEVELS, "day", plan.zone, asked_at=now)
        rows = usage_export(charges_in(self._store, question, cards), period, plan.zone, plan.issuer, billing)
        faults = focus_faults(rows)
        if faults:
            raise InvalidExport(
                f"the export of {day} breaks {len(faults)} rules and is not written; first: {faults[0]}"
            )
        name = f"{day:%Y-%m}/focus-{day}{f'-{revision + 1}' if revision else ''}.{plan.form}"
        path = plan.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        _FORMATS[plan.form](rows, fresh)
        digest = sha256(fresh.read_bytes()).hexdigest()
        fresh.replace(path)
        return name, len(rows), digest

    def _period(self, day: date) -> Period:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=self._plan.zone).astimezone(UTC)
        around = Period(noon - timedelta(days=1), noon + timedelta(days=1))
        return next(part for part in split(around, "day", self._plan.zone) if part.start <= noon < part.end)

    def _append(self, line: str) -> None:
        with (self._plan.directory / INDEX).open("a+b") as index:
            size = index.seek(0, os.SEEK_END)
            index.seek(max(size - 1, 0))
            # A line that a crash truncated must not spoil the next one.
            broken_off = index.read(1) not in (b"", b"\n")
            index.write((b"\n" if broken_off else b"") + line.encode() + b"\n")
            index.flush()
            os.fsync(index.fileno())

    def _index(self) -> dict[str, Exported]:
        """Read the latest file of each day from the index. A line truncated by a crash is skipped."""
        found: dict[str, Exported] = {}
        path = self._plan.directory / INDEX
        if not path.exists():
            self._plan.directory.mkdir(parents=True, exist_ok=True)
            return found
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = Exported(**json.loads(line))
            except (ValueError, TypeError):
                _log.warning("export_index_line_unreadable", extra={"file": str(path)})
                continue
            found[entry.day] = entry
        return found


def _revision(entry: Exported) -> int:
    stem = Path(entry.file).stem.removeprefix(f"focus-{entry.day}")
    return int(stem.removeprefix("-")) - 1 if stem else 0
