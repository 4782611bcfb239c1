"""The ledger that charts show is the ledger that is printed, whatever the steps of the engines were."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from algorithms.gpu_time.ledger import LedgerLines
from analytics.gpu.finished_hours import write_hour
from analytics.gpu.ledger import gpu_ledger
from analytics.gpu.ledger_series import LedgerSeries, ledger_series
from analytics.gpu.load import engine_load
from analytics.gpu.sensors import gpu_sensors
from analytics.gpu.use import gpu_use
from analytics.scope import Period, Scope
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.recording.names import ENGINE_STEPS, GPU_SAMPLES
from contracts.recording.records import DeviceRecord, GpuShare, StepRecord
from tests.analytics.cost.records import request
from tests.analytics.gpu.steps import steps_of_minutes

MS = 10**6


@pytest.fixture
def tell(store: Any) -> Iterator[Callable[[list[StepRecord]], None]]:
    writer: StoreClient = store.client("writer")

    def insert(records: list[StepRecord]) -> None:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, records), deduplication_token=str(uuid4()))

    yield insert
    writer.close()


def any_steps(engine: str, start: datetime, seed: int) -> list[StepRecord]:
    """Steps and stretches of every kind, some across the bounds of minutes, with a hole in their numbers."""
    random, at, records = Random(seed), int(start.timestamp()) * 10**9, []
    for sequence in range(1, 60):
        kind = random.choice(["step", "step", "step", "idle", "load", "warmup", "sleep", "lost"])
        gap, busy = random.choice([0, 3, 900]) * MS + random.randrange(9), random.randrange(1, 20_000) * MS + 7
        rows = random.randrange(4) if kind == "step" else 0
        shares = [busy // (rows + 1)] * rows
        records.append(
            StepRecord(
                engine=engine,
                sequence=sequence + (sequence > 40),
                started_at_ns=at + gap,
                busy_ns=busy,
                gap_ns=gap,
                kind=kind,  # type: ignore[arg-type]  # chosen of its names
                gap_cause=random.choice(["host", "idle", "lifecycle", "unknown"]),
                devices=["GPU-a", "GPU-b"],
                method="m" if rows else "",
                request_ids=[UUID(int=place + 1).bytes for place in range(rows)],
                tenants=["acme"] * rows,
                scheduled=[random.randrange(3) for _ in range(rows)],
                recompute=[random.randrange(3) for _ in range(rows)],
                aborted=[random.random() < 0.3 for _ in range(rows)],
                phases=[place % 2 for place in range(rows)],
                gpu_ns=shares,
            )
        )
        at += gap + busy + random.choice([0, 0, 50 * MS])
    return records


def lines_of(series: LedgerSeries, engine: str) -> LedgerLines:
    (found,) = (one for one in series.engines if one.engine == engine)
    assert found.devices == ("GPU-a", "GPU-b")
    return found.total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_series_sums_to_the_ledger_to_the_nanosecond(
    reader: StoreClient, tell: Callable[[list[StepRecord]], None], seed: int
) -> None:
    start = (datetime.now(UTC) - timedelta(hours=2)).replace(microsecond=0)
    engine = f"engine-{uuid4()}"
    tell(any_steps(engine, start, seed))
    scope = Scope(start + timedelta(seconds=47), start + timedelta(minutes=9, seconds=11))
    series = ledger_series(reader, scope)
    ledger = gpu_ledger(reader, Period(scope.start, scope.end))
    single = [one.lines for one in ledger.minutes if one.engine == engine and one.device == "GPU-a"]
    assert lines_of(series, engine) == sum(single, LedgerLines())
    (ours,) = (one for one in series.engines if one.engine == engine)
    alone = LedgerSeries(series.step, series.steps, (ours,), scope.end)
    assert sum(alone.over_time(), LedgerLines()) == ours.total + ours.total  # it has two GPUs
    assert alone.over_time("GPU-a") == ours.lines and alone.by_device()["GPU-b"] == ours.total


@pytest.mark.parametrize(("told", "missing", "repeated"), [((1, 3), 1, 0), ((1, 2, 3), 0, 0), ((1, 2, 3, 3, 2), 0, 2)])
def test_holes_are_never_fewer_than_none_and_repeats_are_said(
    empty_store: Any, told: tuple[int, ...], missing: int, repeated: int
) -> None:
    start = (datetime.now(UTC) - timedelta(hours=2)).replace(microsecond=0)
    at = int(start.timestamp()) * 10**9
    steps = [StepRecord(engine="e", sequence=one, started_at_ns=at + one * 10**9, busy_ns=10**9) for one in told]
    writer, reader = empty_store.client("writer"), empty_store.client("reader")
    writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=str(uuid4()))
    scope = Scope(start, start + timedelta(minutes=1))
    for found in (ledger_series(reader, scope), gpu_ledger(reader, Period(scope.start, scope.end))):
        assert (found.missing_steps, found.repeated_steps) == (missing, repeated)
    writer.close()
    reader.close()


def test_older_ranges_are_made_of_finished_hours(reader: StoreClient, store: Any) -> None:
    now = datetime.now(UTC)
    hour = (now - timedelta(hours=100)).replace(minute=0, second=0, microsecond=0)
    engine = f"engine-{uuid4()}"
    steps = steps_of_minutes(engine, "GPU-a", hour, minutes=60)
    writer: StoreClient = store.client("writer")
    writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=str(uuid4()))
    write_hour(writer, hour, engine, hour + timedelta(hours=2))
    writer.close()
    series = ledger_series(reader, Scope(hour - timedelta(minutes=30), now, asked_at=now))
    (ours,) = (one for one in series.engines if one.engine == engine)
    assert ours.devices == ("GPU-a",) and ours.total.wall_ns == 3_600 * 10**9
    assert (ours.total.attributed_ns, ours.total.unexplained_ns) == (60 * 24 * 10**9, 0)
    assert now - timedelta(hours=3) < series.until <= now
    assert ledger_series(reader, Scope(hour, hour + timedelta(minutes=1), asked_at=now)).engines == ()


def test_an_engine_s_load_is_told_per_step_and_prefix_hits_by_token(
    reader: StoreClient, tell: Callable[[list[StepRecord]], None]
) -> None:
    start = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
    engine = f"engine-{uuid4()}"
    common: dict[str, Any] = {"engine": engine, "busy_ns": 1, "method": "m", "kv_blocks_total": 100}
    at = int(start.timestamp()) * 10**9
    ids = [UUID(int=1).bytes, UUID(int=2).bytes]
    tell(
        [
            StepRecord(
                **common, sequence=1, started_at_ns=at, request_ids=ids, tenants=["a", "b"], scheduled=[30, 1],
                cached=[10, 0], phases=[0, 1], kv_blocks_used=20, waiting=3, running=2, gpu_ns=[1, 0],
            ),
            StepRecord(
                **common, sequence=2, started_at_ns=at + 60 * 10**9, request_ids=ids[:1], tenants=["a"], scheduled=[1],
                phases=[1], kv_blocks_used=60, waiting=0, running=1, gpu_ns=[1],
            ),
        ]
    )  # fmt: skip
    load = engine_load(reader, Scope(start, start + timedelta(minutes=3)))
    (ours,) = (one for one in load.engines if one.engine == engine)
    assert [point.engine_steps for point in ours.points] == [1, 1, 0]
    assert (ours.whole.batch, ours.whole.tokens, ours.whole.waiting, ours.whole.waiting_most) == (1.5, 16.0, 1.5, 3)
    assert (ours.whole.kv_share, ours.whole.kv_most, ours.whole.prefix_hits) == (0.4, 0.6, 0.25)
    assert ours.points[2].batch is None and ours.points[2].prefix_hits is None


def test_a_sensor_that_is_absent_is_not_a_sensor_that_reads_zero(reader: StoreClient, store: Any) -> None:
    start = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
    device, at = f"GPU-{uuid4()}", int(start.timestamp()) * 10**9
    looks = [
        DeviceRecord(
            host="h", sequence=number, at_ns=at + number * 30 * 10**9, device=device, device_model="H200",
            power_watts=100.0 * number, dram_activity=0.0, throttle_bits=number,
        )
        for number in range(3)
    ]  # fmt: skip
    writer: StoreClient = store.client("writer")
    writer.insert_arrow("gpu_samples", arrow_batch(GPU_SAMPLES, looks), deduplication_token=str(uuid4()))
    writer.close()
    sensors = gpu_sensors(reader, Scope(start, start + timedelta(minutes=3)))
    (ours,) = (one for one in sensors.devices if one.device == device)
    assert ours.model == "H200" and ours.has("dram") and not ours.has("sm")
    assert [point.power_watts for point in ours.points] == [50.0, 200.0, None]
    assert (ours.mean("dram"), ours.mean("sm"), ours.points[0].throttle_bits) == (0.0, None, 1)
    with pytest.raises(InvalidRequest, match="kept for 14 days"):
        gpu_sensors(reader, Scope(start - timedelta(days=15), start, asked_at=start))


def test_gpu_time_is_by_team_of_those_it_was_asked_for(reader: StoreClient, record: Any) -> None:
    start = (datetime.now(UTC) - timedelta(hours=1)).replace(second=0, microsecond=0)
    tenant = f"tenant-{uuid4()}"
    share = GpuShare(prefill_ns=5, decode_ns=7)
    record(
        [
            request(start, who=Identity(tenant, "red"), gpu=share),
            request(start + timedelta(minutes=1), who=Identity(tenant, "blue"), gpu=share),
            request(start, who=Identity(tenant, "blue")),
        ]
    )
    scope = Scope(start, start + timedelta(minutes=2), tenant=tenant)
    use = gpu_use(reader, scope)
    assert use.teams == {(tenant, "blue"): (0, 12), (tenant, "red"): (12, 0)} and use.total_ns == 24
    red = gpu_use(reader, Scope(start, start + timedelta(minutes=2), tenant=tenant, team="red"))
    assert red.total_ns == 12 and red.requests == {(tenant, "red"): 1}
