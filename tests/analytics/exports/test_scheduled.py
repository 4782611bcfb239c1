"""Days that are exported by themselves: each once, when it is over, again only where late records changed it."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from analytics.exports.focus_file import file_faults
from analytics.exports.scheduled import INDEX, LEASE, ExportPlan, ExportsLeftOut, ScheduledExports
from backends.control.database import ControlDatabase
from backends.control.leases import take_lease
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from tests.analytics.cost.records import request

Record = Callable[[Sequence[RequestRecord]], None]


@pytest.fixture(scope="module")
def years() -> Iterator[int]:
    """Years that no other test writes to: exports are of all tenants."""
    return count(2060)


@pytest.fixture
def day(years: Iterator[int]) -> datetime:
    """The tenth of July of a year of one's own."""
    return datetime(next(years), 7, 10, tzinfo=UTC)


class Clock:
    """A moment that the test moves."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class Desk:
    """Exports into a directory, and what stands in their index."""

    def __init__(self, database: ControlDatabase, store: StoreClient, directory: Path, **plan: object) -> None:
        self.database = database
        self.clock = Clock(datetime(2060, 1, 1, tzinfo=UTC))
        self.plan = ExportPlan(directory, **plan)  # type: ignore[arg-type]  # named by each test
        self.exports = ScheduledExports(database, store, "here", self.plan, self.clock)

    def at(self, moment: datetime) -> int:
        self.clock.now = moment
        return self.exports.write_due()

    def index(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.plan.directory / INDEX).read_text().splitlines()]


def spent(moment: datetime, amount: int) -> RequestRecord:
    usage = Usage(input_text=10, output_text=1)
    return request(moment, who=Identity("exports", "red"), usage=usage, cost_pico_usd=amount, provider="openai")


def test_a_day_is_written_when_it_is_complete_and_once(
    control_database: ControlDatabase, reader: StoreClient, record: Record, tmp_path: Path, day: datetime
) -> None:
    desk = Desk(control_database, reader, tmp_path / "out")
    record([spent(day - timedelta(hours=5), 100), spent(day + timedelta(hours=5), 7)])
    assert desk.at(day + timedelta(minutes=59)) == 1  # the day before, as the first
    assert [entry["day"] for entry in desk.index()] == [f"{day:%Y}-07-08"], "yesterday is not complete yet"
    assert desk.at(day + timedelta(hours=1)) == 1
    assert desk.at(day + timedelta(hours=2)) == 0
    file = tmp_path / "out" / f"{day:%Y}-07" / f"focus-{day:%Y}-07-09.csv"
    assert file_faults(file) == (1, [])
    (_, entry) = desk.index()
    assert (entry["file"], entry["cost_pico_usd"], entry["requests"]) == (
        f"{day:%Y}-07/focus-{day:%Y}-07-09.csv",
        100,
        1,
    )
    file.unlink()  # whoever fetches it may take it away
    assert desk.at(day + timedelta(hours=3)) == 0 and not file.exists()
    assert not list((tmp_path / "out").rglob("*.new"))


def test_late_records_make_another_file_that_says_what_it_replaces(
    control_database: ControlDatabase, reader: StoreClient, record: Record, tmp_path: Path, day: datetime
) -> None:
    start = day + timedelta(days=20)
    desk = Desk(control_database, reader, tmp_path, form="parquet")
    record([spent(start + timedelta(hours=1), 5)])
    assert desk.at(start + timedelta(days=1, hours=2)) == 1
    record([spent(start + timedelta(hours=2), 6)])
    assert desk.at(start + timedelta(days=1, hours=3)) == 1
    (_, again) = desk.index()
    assert (again["file"], again["replaces"], again["cost_pico_usd"]) == (
        f"{day:%Y}-07/focus-{day:%Y}-07-30-2.parquet",
        f"{day:%Y}-07/focus-{day:%Y}-07-30.parquet",
        11,
    )
    assert file_faults(tmp_path / str(again["file"])) == (1, [])  # of one price, so one charge
    assert desk.at(start + timedelta(days=6, hours=2)) >= 1
    record([spent(start + timedelta(hours=3), 1)])
    assert desk.at(start + timedelta(days=6, hours=3)) == 0, "a day is looked at again for three days"


def test_after_a_pause_every_day_is_caught_up_with_in_its_own_zone(
    control_database: ControlDatabase, reader: StoreClient, tmp_path: Path, day: datetime
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    desk = Desk(control_database, reader, tmp_path, zone=zone, settles_after=timedelta(0))
    start = datetime(2049, 10, 30, 0, 0, tzinfo=zone)
    assert desk.at(start.astimezone(UTC)) == 1
    assert desk.at(datetime(2049, 11, 4, 0, 0, tzinfo=zone).astimezone(UTC)) == 5  # one of them has 25 hours
    days = [date.fromisoformat(str(entry["day"])) for entry in desk.index()]
    assert days == [date(2049, 10, 29) + timedelta(days=number) for number in range(6)]


def test_a_day_that_fails_keeps_no_other_back_and_is_named(
    control_database: ControlDatabase,
    reader: StoreClient,
    record: Record,
    tmp_path: Path,
    day: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(control_database, reader, tmp_path)
    assert desk.at(day + timedelta(hours=2)) == 1
    for number in range(3):
        record([spent(day + timedelta(days=number), 5)])
    bad = f"{day + timedelta(days=1):%Y-%m-%d}"
    rules = "analytics.exports.scheduled.focus_faults"
    monkeypatch.setattr(rules, lambda rows: ["a rule"] if bad in str(rows[0]["ChargePeriodStart"]) else [])
    with pytest.raises(ExportsLeftOut, match=f"of {bad} are not written .* breaks 1 rules .* a rule"):
        desk.at(day + timedelta(days=3, hours=2))
    assert [entry["day"] for entry in desk.index()] == [
        f"{day + timedelta(days=number):%Y-%m-%d}" for number in (-1, 0, 2)
    ]
    monkeypatch.undo()
    assert desk.at(day + timedelta(days=3, hours=3)) == 1


def test_a_line_that_a_crash_cut_off_takes_no_other_with_it(
    control_database: ControlDatabase, reader: StoreClient, tmp_path: Path, day: datetime
) -> None:
    desk = Desk(control_database, reader, tmp_path)
    (tmp_path / INDEX).write_text('{"day": "2060-')
    assert desk.at(day + timedelta(hours=2)) == 1
    assert desk.at(day + timedelta(hours=3)) == 0, "its line can be read"
    assert len((tmp_path / INDEX).read_text().splitlines()) == 2


def test_while_another_process_writes_nothing_is_written_twice(
    control_database: ControlDatabase, reader: StoreClient, tmp_path: Path, day: datetime
) -> None:
    desk = Desk(control_database, reader, tmp_path / "out")
    with control_database.session() as session:
        assert take_lease(session, LEASE, "another", day, timedelta(minutes=15)) is not None
    assert desk.at(day + timedelta(minutes=5)) == 0 and not (tmp_path / "out").exists()
    assert desk.at(day + timedelta(minutes=20)) == 1


def test_a_directory_that_cannot_be_written_is_named(
    control_database: ControlDatabase, reader: StoreClient, tmp_path: Path, day: datetime
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written to .*TOLLKEEPER_EXPORT_DIRECTORY"):
        Desk(control_database, reader, tmp_path / "file").at(day)
    with pytest.raises(ConfigurationError, match="'xml' is not a form of an export"):
        ExportPlan(tmp_path, "xml")


def test_a_file_is_checked_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("BilledCost,BilledCost,ChargePeriodStart,x_Own,Tags\n1e+3,2,2049-01-01,a,{}\n+5,1,x\n")
    rows, faults = file_faults(path)
    said = "\n".join(faults)
    assert rows == 1
    for fault in (
        "column EffectiveCost is missing",
        "column BilledCost stands twice",
        "column Tags stands behind columns that begin with x_",
        "row 1: BilledCost '1e+3' is not in FOCUS's numeric format",
        "row 1: ChargePeriodStart '2049-01-01' is not in FOCUS's time format",
        "row 2: has 3 values for 5 columns",
    ):
        assert fault in said
