"""Signals of engines on the Prometheus page: what is not known has no sample; KEDA's example reads what is there."""

import re
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from algorithms.gpu_time.step_model import StepModel
from analytics.autoscaling.exposition import signal_page
from analytics.autoscaling.signals import (
    IDLE_FRESH_SECONDS,
    ModelSignals,
    SignalReader,
    predicted_ttft_seconds,
    signals_of,
)
from backends.store.client import Row
from backends.store.columns import arrow_batch
from contracts.recording.names import ENGINE_STEPS
from contracts.recording.records import StepKind, StepRecord

MODEL = StepModel(token_ns=1e5, ridge_tokens=10, pair_ns=0, read_ns=0, logit_ns=0, fixed_ns=1e6)
KNOWN = ModelSignals("m", 2, 6, 8, 0.75, 0.5, 1.25)
UNKNOWN = ModelSignals("n", 1, 0, 0, None, 0.0, None)


def test_the_page_has_a_sample_for_what_is_known_only() -> None:
    page = signal_page({"m": KNOWN, "n": UNKNOWN}).decode()
    assert 'tollkeeper_autoscaling_queue_requests{model="m"} 6.0' in page
    assert 'tollkeeper_autoscaling_queue_requests{model="n"} 0.0' in page
    assert 'tollkeeper_autoscaling_predicted_ttft_seconds{model="m"} 1.25' in page
    assert 'kv_usage_ratio{model="n"}' not in page and 'predicted_ttft_seconds{model="n"}' not in page


def test_the_documented_scaled_object_reads_metrics_of_the_page_and_fails_on_a_missing_one() -> None:
    page = {line.split("{")[0] for line in signal_page({"m": KNOWN}).decode().splitlines()}
    text = (Path(__file__).parents[3] / "docs" / "planning.md").read_text()
    scaled = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert scaled["spec"]["minReplicaCount"] >= 1 and scaled["spec"]["fallback"]["failureThreshold"]
    for trigger in scaled["spec"]["triggers"]:
        names = set(re.findall(r"tollkeeper_\w+", trigger["metadata"]["query"]))
        assert names and names <= page
        assert trigger["metadata"]["ignoreNullValues"] == "false"


def test_a_newcomer_waits_for_the_prompts_before_it_and_half_a_step() -> None:
    alone = predicted_ttft_seconds(MODEL, 100.0, 0, 0)
    assert alone == pytest.approx((100 * 1e5 + 1e6) / 1e9)
    assert predicted_ttft_seconds(MODEL, 100.0, 3, 0) == pytest.approx(4 * alone)
    assert predicted_ttft_seconds(MODEL, 100.0, 0, 20) == pytest.approx(alone + (20 * 1e5 + 1e6) / 2e9)


def test_signals_come_from_what_engines_told_last(store: Any) -> None:
    model, now = f"model-{uuid4()}", time.time_ns()
    rows = [
        step(model, "a", now - 3 * 10**9, waiting=9, running=4, used=10),
        step(model, "a", now - 2 * 10**9, waiting=5, running=4, used=30),
        step(model, "b", now - 2 * 10**9, waiting=1, running=2, used=20),
        step(model, "c", now - 2 * 10**9, waiting=2, running=2, used=20),
        step(model, "c", now - 10**9, kind="idle"),
        step(model, "old", now - 60 * 10**9, waiting=50, running=2, used=20),
        step(model, "resting", now - 61 * 10**9, kind="idle"),  # its last stretch was long, the next is to come
        step(model, "gone", now - (IDLE_FRESH_SECONDS + 1) * 10**9, kind="idle"),
    ]
    writer, reading = store.client("writer"), store.client("reader")
    try:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, rows), deduplication_token=model)
        found = SignalReader(reading).read()[model]
    finally:
        writer.close()
        reading.close()
    assert (found.replicas, found.waiting, found.running, found.kv_share) == (4, 6, 6, 0.3)
    assert found.predicted_ttft_seconds is None, "no prompt of this model is known"
    assert 0 < found.busy_share < 1


def step(
    model: str,
    replica: str,
    at_ns: int,
    kind: StepKind = "step",
    *,
    waiting: int | None = None,
    running: int | None = None,
    used: int | None = None,
) -> StepRecord:
    return StepRecord(
        engine=f"{model}-{replica}",
        sequence=at_ns,
        started_at_ns=at_ns,
        busy_ns=10**8 if kind == "step" else 0,
        kind=kind,
        model=model,
        replica=replica,
        kv_blocks_used=used,
        kv_blocks_total=None if used is None else 100,
        waiting=waiting,
        running=running,
    )


def test_no_replicas_are_no_signals() -> None:
    row: Row = {"blocks_used": 0, "blocks_total": 0, "is_idle": 1, "waiting_now": 7, "running_now": 7, "busy_sum": 0}
    found = signals_of("m", [row], None, None)
    assert (found.waiting, found.running, found.kv_share, found.predicted_ttft_seconds) == (0, 0, None, None)
