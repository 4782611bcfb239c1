"""Signals of engines: what Prometheus and KEDA are told, and that nothing is told of what is not known."""

import struct
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import grpc
import pytest

from analytics.autoscaling import keda_messages as messages
from analytics.autoscaling.exposition import signal_page
from analytics.autoscaling.external_scaler import ExternalScaler, Wanted
from analytics.autoscaling.signals import ModelSignals, SignalReader, predicted_ttft_seconds, signals_of
from backends.store.client import Row
from backends.store.columns import arrow_batch
from contracts.errors import InvalidRequest, StoreUnavailable
from contracts.names import ENGINE_STEPS
from contracts.records import StepKind, StepRecord
from contracts.step_model import StepModel

MODEL = StepModel(token_ns=1e5, ridge_tokens=10, pair_ns=0, read_ns=0, logit_ns=0, fixed_ns=1e6)
KNOWN = ModelSignals("m", 2, 6, 8, 0.75, 0.5, 1.25)
UNKNOWN = ModelSignals("n", 1, 0, 0, None, 0.0, None)


class Told:
    """Signals that a test sets; an error in their place is raised."""

    def __init__(self) -> None:
        self.signals: dict[str, ModelSignals] | StoreUnavailable = {"m": KNOWN, "n": UNKNOWN}

    def read(self) -> dict[str, ModelSignals]:
        if isinstance(self.signals, StoreUnavailable):
            raise self.signals
        return self.signals


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def channel(told: Told) -> Iterator[grpc.Channel]:
    scaler = ExternalScaler(told)
    scaler.start()
    with grpc.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        yield channel
    scaler.stop()


def reference(**metadata: str) -> Any:
    return messages.ScaledObjectRef(name="pool", namespace="default", scalerMetadata=metadata)


def ask(channel: grpc.Channel, method: str, request: Any, answer: Any) -> Any:
    call: Any = channel.unary_unary(
        f"/{messages.SERVICE}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    return call(request, timeout=10)


def metric(channel: grpc.Channel, **metadata: str) -> float:
    asked = messages.GetMetricsRequest(scaledObjectRef=reference(**metadata), metricName="any")
    (value,) = ask(channel, "GetMetrics", asked, messages.GetMetricsResponse).metricValues
    return float(value.metricValueFloat)


def test_keda_is_told_the_metric_its_target_and_its_value(channel: grpc.Channel) -> None:
    asked = reference(model="m", signal="kv", target="0.7")
    (spec,) = ask(channel, "GetMetricSpec", asked, messages.GetMetricSpecResponse).metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("tollkeeper-kv", 1, 0.7)
    assert metric(channel, model="m") == 6
    assert metric(channel, model="m", signal="kv") == 1.5, "KEDA divides by the replicas"
    assert metric(channel, model="m", signal="ttft") == 2.5
    assert ask(channel, "IsActive", asked, messages.IsActiveResponse).result is True
    assert ask(channel, "IsActive", reference(model="n"), messages.IsActiveResponse).result is False


# Written out by the field numbers of KEDA's own externalscaler.proto, so that no description of ours is on both sides.
KEDA_REFERENCE = b"\x0a\x04pool\x12\x07default\x1a\x0a\x0a\x05model\x12\x01m" + b"\x1a\x0c\x0a\x06signal\x12\x02kv"
KEDA_VALUE = b"\x0a\x1a" + b"\x0a\x0dtollkeeper-kv" + b"\x10\x02" + b"\x19" + struct.pack("<d", 1.5)
KEDA_SPEC = b"\x0a\x1a" + b"\x0a\x0dtollkeeper-kv" + b"\x10\x01" + b"\x19" + struct.pack("<d", 0.8)


@pytest.mark.parametrize(
    ("method", "asked", "answer"),
    [
        ("IsActive", KEDA_REFERENCE, b"\x08\x01"),
        ("GetMetricSpec", KEDA_REFERENCE, KEDA_SPEC),
        ("GetMetrics", b"\x0a" + bytes([len(KEDA_REFERENCE)]) + KEDA_REFERENCE + b"\x12\x0dtollkeeper-kv", KEDA_VALUE),
    ],
)
def test_the_bytes_on_the_wire_are_keda_s(channel: grpc.Channel, method: str, asked: bytes, answer: bytes) -> None:
    call: Any = channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")
    assert call(asked, timeout=10) == answer


def test_a_later_keda_that_offers_to_be_told_of_targets_goes_on_asking(channel: grpc.Channel) -> None:
    call: Any = channel.unary_stream("/externalscaler.ExternalScaler/StreamMetricSpec")
    with pytest.raises(grpc.RpcError) as caught:
        next(iter(call(KEDA_REFERENCE, timeout=10)))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED, "on which KEDA asks for GetMetricSpec"


def test_a_stream_tells_when_activity_begins(channel: grpc.Channel) -> None:
    call = channel.unary_stream(
        f"/{messages.SERVICE}/StreamIsActive",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=messages.IsActiveResponse.FromString,
    )(reference(model="m"), timeout=10)
    assert next(iter(call)).result is True
    call.cancel()


def test_what_is_not_known_is_unavailable_and_not_zero(channel: grpc.Channel, told: Told) -> None:
    for metadata in ({"model": "n", "signal": "kv"}, {"model": "gone"}):
        with pytest.raises(grpc.RpcError) as caught:
            metric(channel, **metadata)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    told.signals = StoreUnavailable("the store does not answer")
    with pytest.raises(grpc.RpcError) as caught:
        metric(channel, model="m")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "lacks `model`"),
        ({"model": "m", "signal": "x"}, "queue, kv, ttft"),
        ({"model": "m", "target": "0"}, "above 0"),
    ],
)
def test_metadata_that_cannot_be_is_named(channel: grpc.Channel, metadata: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Wanted.of(metadata)
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, "GetMetricSpec", reference(**metadata), messages.GetMetricSpecResponse)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_page_has_a_sample_for_what_is_known_only() -> None:
    page = signal_page({"m": KNOWN, "n": UNKNOWN}).decode()
    assert 'tollkeeper_autoscaling_queue_requests{model="m"} 6.0' in page
    assert 'tollkeeper_autoscaling_queue_requests{model="n"} 0.0' in page
    assert 'tollkeeper_autoscaling_predicted_ttft_seconds{model="m"} 1.25' in page
    assert 'kv_usage_ratio{model="n"}' not in page and 'predicted_ttft_seconds{model="n"}' not in page


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
    ]
    writer, reading = store.client("writer"), store.client("reader")
    try:
        writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, rows), deduplication_token=model)
        found = SignalReader(reading).read()[model]
    finally:
        writer.close()
        reading.close()
    assert (found.replicas, found.waiting, found.running, found.kv_share) == (3, 6, 6, 0.3)
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
