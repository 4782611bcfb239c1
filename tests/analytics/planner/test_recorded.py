"""What a plan takes from the store: requests as a workload, steps as a fitted replica, and errors where they lack."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from algorithms.gpu_time.step_model import StepModel, StepRow
from analytics.planner.recorded import measured_setup, recorded_workload
from analytics.scope import Period
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import InvalidRequest
from contracts.metering.usage import Usage
from contracts.recording.names import ENGINE_STEPS
from contracts.recording.records import RequestRecord, StepRecord

BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
HOUR = Period(BEGIN, BEGIN + timedelta(hours=1))
MODEL = StepModel(token_ns=9e3, ridge_tokens=60, pair_ns=0.05, read_ns=12.0, logit_ns=300.0, fixed_ns=9e4)


def test_requests_come_back_in_order_with_lengths_and_what_they_share(
    reader: StoreClient, record: Callable[[Sequence[RequestRecord]], None]
) -> None:
    tenant, at = f"tenant-{uuid4()}", int(BEGIN.timestamp()) * 10**9
    rows = (
        (5, Usage(input_text=300, output_text=7), ""),
        (1, Usage(input_text=100, cache_read_text=260, output_text=9), ""),
        (9, Usage(input_text=700, output_text=3, output_reasoning=4), "talk"),
        (7, Usage(input_text=0, output_text=0), ""),  # nothing to replay
        (4_000, Usage(input_text=5, output_text=5), ""),  # another time
    )
    record(
        [
            RequestRecord(
                request_id=uuid4().bytes,
                started_at_ns=at + seconds * 10**9,
                duration_ns=1,
                who=Identity(tenant),
                model="m",
                usage=usage,
                conversation_id=talk,
            )
            for seconds, usage, talk in rows
        ]
    )
    workload = recorded_workload(reader, HOUR, model="m", tenant=tenant)
    assert [(one.at_ns // 10**9, one.input_tokens, one.output_tokens) for one in workload.requests] == [
        (0, 360, 9),
        (4, 300, 7),
        (8, 700, 7),
    ]
    assert [len(one.keys) for one in workload.requests] == [2, 0, 5]
    assert not set(workload.requests[0].keys) & set(workload.requests[2].keys)
    assert workload.requests[2].session == "talk" and workload.tenants == {tenant: 3}


def test_a_time_without_requests_or_steps_is_named(reader: StoreClient) -> None:
    with pytest.raises(InvalidRequest, match="has no requests"):
        recorded_workload(reader, HOUR, tenant="nobody")
    with pytest.raises(InvalidRequest, match="0 engine steps of nothing"):
        measured_setup(reader, HOUR, model="nothing")


def test_a_replica_is_fitted_to_its_measured_steps(store: Any, reader: StoreClient) -> None:
    model, at = f"model-{uuid4()}", int(BEGIN.timestamp()) * 10**9
    steps = []
    for number in range(200):
        rows = [StepRow(1, 50 * (place + 1) + number) for place in range(1 + number % 12)]
        if number % 5 == 0:
            rows.append(StepRow(40 + 3 * number, 0))
        steps.append(
            StepRecord(
                engine=model,
                sequence=number,
                started_at_ns=at + number * 10**7,
                busy_ns=round(MODEL.predict_ns(rows)),
                gap_ns=250_000,
                gap_cause="host" if number else "idle",
                model=model,
                kv_blocks_used=1,
                kv_blocks_total=321,
                request_ids=[bytes(16)] * len(rows),
                scheduled=[row.scheduled for row in rows],
                context=[row.context for row in rows],
                phases=[int(row.scheduled == 1) for row in rows],
            )
        )
    writer = store.client("writer")
    try:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=model)
    finally:
        writer.close()
    setup = measured_setup(reader, HOUR, model=model)
    assert (setup.kv_blocks, setup.host_gap_ns, setup.max_sequences) == (321, 250_000.0, 13)
    assert setup.steps.decode_ns(8, 4_000) == pytest.approx(MODEL.decode_ns(8, 4_000), rel=0.03)
    assert setup.steps.prefill_ns(300) == pytest.approx(MODEL.prefill_ns(300), rel=0.03)
    assert measured_setup(reader, HOUR, model=model, kv_blocks=99).kv_blocks == 99


def test_steps_of_two_models_are_no_replica(store: Any, reader: StoreClient) -> None:
    begin = BEGIN - timedelta(hours=4)
    steps = [
        StepRecord(
            engine=f"{model}-{begin}",
            sequence=number,
            started_at_ns=int(begin.timestamp()) * 10**9 + number,
            busy_ns=1_000,
            model=model,
            scheduled=[1],
            context=[1],
        )
        for model in ("large", "small")
        for number in range(20)
    ]
    writer = store.client("writer")
    try:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=str(uuid4()))
    finally:
        writer.close()
    with pytest.raises(InvalidRequest, match="large.*small were measured; choose one with --model"):
        measured_setup(reader, Period(begin, begin + timedelta(seconds=1)))
