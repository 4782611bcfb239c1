"""Which traces are kept, when that is decided, and what happens to those that the spool does not take."""

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.arrival import Arrival
from collector.counters import Counters
from collector.processors.metrics import MetricsProcessor
from collector.processors.spans import SpansProcessor
from collector.processors.tail_sampling import SamplingPolicy, TailSampler
from contracts.errors import LimitExceeded
from tests.collector.otlp_samples import NOW, gauge_request, span_request
from tests.collector.test_admission import Clock

DRAWN, NOT_DRAWN = b"\xff" * 16, b"\x01" + bytes(15)


class Sampling:
    """A sampler that keeps half of the ordinary traces, after a second."""

    def __init__(self, share: float = 0.5, max_bytes: int = 1 << 20) -> None:
        self.clock, self.counters = Clock(), Counters()
        self.kept: list[ExportTraceServiceRequest] = []
        policy = SamplingPolicy(share, slow_seconds=2.0, expensive_usd=0.5, wait_seconds=1.0, max_bytes=max_bytes)
        self.sampler = TailSampler(policy, self.kept.append, self.counters, self.clock)

    def send(self, *spans: Mapping[str, Any]) -> list[str]:
        """Send a request and return the names of the spans that go on at once."""
        message = span_request(*spans, resource={"service.name": "app"}, scope="s")
        arrival = Arrival(SpansProcessor(), message, message.SerializeToString(), len(spans))
        self.sampler.admit(arrival)
        return names_of(arrival.message)

    def decided(self) -> list[str]:
        self.clock.now += 1.0
        self.sampler.decide()
        return [name for request in self.kept for name in names_of(request)]


def names_of(request: ExportTraceServiceRequest) -> list[str]:
    return [span.name for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]


@pytest.mark.parametrize(
    ("span", "is_kept"),
    [
        ({"trace_id": NOT_DRAWN}, False),
        ({"trace_id": DRAWN}, True),
        ({"trace_id": NOT_DRAWN, "status": {"code": 2}}, True),
        ({"trace_id": NOT_DRAWN, "status": {"code": 1}}, False),
        ({"trace_id": NOT_DRAWN, "start_time_unix_nano": NOW - 2_000_000_000}, True),
        ({"trace_id": NOT_DRAWN, "start_time_unix_nano": NOW - 1_999_999_999}, False),
        ({"trace_id": NOT_DRAWN, "attributes": {"gen_ai.usage.cost.amount": 0.5}}, True),
        ({"trace_id": NOT_DRAWN, "attributes": {"gen_ai.usage.cost.amount": 0.49}}, False),
        ({"trace_id": NOT_DRAWN, "attributes": {"llm.cost.total": 0.5}}, True),
        ({"trace_id": NOT_DRAWN, "attributes": {"gen_ai.usage.cost.amount": 1}}, True),
    ],
    ids=[
        "ordinary",
        "drawn",
        "faulty",
        "fine",
        "slow",
        "nearly slow",
        "expensive",
        "nearly expensive",
        "OpenInference",
        "whole",
    ],
)
def test_errors_slow_expensive_and_drawn_traces_are_kept_whole(span: Mapping[str, Any], is_kept: bool) -> None:
    sampling = Sampling()
    other = {"trace_id": span["trace_id"], "name": "other"}
    assert sampling.send(other) == []
    assert sampling.send({**span, "name": "telling"}) == []
    assert sampling.decided() == (["other", "telling"] if is_kept else [])
    assert sampling.counters.snapshot()["rejected"] == ({} if is_kept else {"sampled_out": 2})


def test_nothing_is_decided_before_its_time() -> None:
    sampling = Sampling()
    sampling.send({"trace_id": DRAWN})
    sampling.clock.now += 0.999
    sampling.sampler.decide()
    assert sampling.kept == []


def test_a_late_span_follows_the_decision_and_a_late_error_is_kept() -> None:
    sampling = Sampling()
    sampling.send({"trace_id": DRAWN}, {"trace_id": NOT_DRAWN})
    sampling.decided()
    late = sampling.send(
        {"trace_id": DRAWN, "name": "a"},
        {"trace_id": NOT_DRAWN, "name": "b"},
        {"trace_id": NOT_DRAWN, "name": "c", "status": {"code": 2}},
    )
    assert late == ["a", "c"]


def test_a_drawn_span_says_for_what_share_it_stands_and_keeps_whose_it_is() -> None:
    sampling = Sampling()
    sampling.send({"trace_id": DRAWN}, {"trace_id": NOT_DRAWN, "status": {"code": 2}})
    sampling.decided()
    (request,) = sampling.kept
    (part,) = request.resource_spans
    assert part.resource.attributes[0].value.string_value == "app"
    drawn, faulty = part.scope_spans[0].spans
    assert (drawn.attributes[0].key, drawn.attributes[0].value.double_value) == ("tollkeeper.sampled.share", 0.5)
    assert not faulty.attributes


def test_a_sender_s_batch_that_is_decided_in_two_turns_is_no_repetition() -> None:
    sampling = Sampling()
    message = span_request({"trace_id": DRAWN}, resource={"service.name": "app", "tollkeeper.batch.id": "b1"})
    sampling.sampler.admit(Arrival(SpansProcessor(), message, message.SerializeToString(), 1))
    sampling.decided()
    (request,) = sampling.kept
    assert [attribute.key for attribute in request.resource_spans[0].resource.attributes] == ["service.name"]


def test_what_waits_is_bounded_and_the_oldest_is_decided_early() -> None:
    sampling = Sampling(max_bytes=1)
    sampling.send({"trace_id": DRAWN})
    sampling.sampler.decide()
    assert len(sampling.kept) == 1


class FullSpool:
    """Accepts what is handed on once it has room."""

    def __init__(self) -> None:
        self.has_room = False
        self.kept: list[ExportTraceServiceRequest] = []

    def keep(self, request: ExportTraceServiceRequest) -> None:
        if not self.has_room:
            raise LimitExceeded("the spool is full", code="spool_full", retry_after_seconds=5)
        self.kept.append(request)


def test_traces_that_a_full_spool_does_not_take_are_held_until_it_does() -> None:
    full, clock, counters = FullSpool(), Clock(), Counters()
    policy = SamplingPolicy(0.5, slow_seconds=2.0, expensive_usd=0.5, wait_seconds=1.0, max_bytes=100)
    sampler = TailSampler(policy, full.keep, counters, clock)

    def send(name: str) -> None:
        message = span_request({"trace_id": DRAWN, "name": name})
        sampler.admit(Arrival(SpansProcessor(), message, message.SerializeToString(), 1))

    send("first")
    clock.now += 1.0
    sampler.decide()
    assert counters.snapshot()["rejected"] == {}
    with pytest.raises(LimitExceeded, match="TOLLKEEPER_COLLECTOR_SAMPLE_MAX_BYTES") as refusal:
        send("second")
    assert refusal.value.error_code == "sampling_full"
    full.has_room = True
    sampler.decide()
    assert [names_of(request) for request in full.kept] == [["first"]]
    send("third")


def test_a_sampled_request_that_comes_again_is_acknowledged_and_kept_once() -> None:
    sampling = Sampling()
    for _ in range(2):
        assert sampling.send({"trace_id": DRAWN, "name": "n"}) == []
    assert sampling.decided() == ["n"]
    assert sampling.send({"trace_id": DRAWN, "name": "n"}) == []
    assert sampling.counters.snapshot()["noticed"] == {"duplicate_batches": 2}


def test_late_spans_that_the_spool_refused_go_on_when_they_come_again_and_no_others() -> None:
    sampling = Sampling()
    sampling.send({"trace_id": DRAWN})
    assert len(sampling.decided()) == 1
    other = DRAWN[:-1] + b"\x00"
    spans = ({"trace_id": DRAWN, "name": "late"}, {"trace_id": other, "name": "held", "span_id": b"12345678"})
    for _ in range(2):
        assert sampling.send(*spans) == ["late"]


def test_without_sampling_and_for_other_signals_requests_pass_untouched() -> None:
    assert Sampling(share=1.0).send({"trace_id": NOT_DRAWN, "name": "n"}) == ["n"]
    message = gauge_request("m", ({}, 1.0))
    arrival = Arrival(MetricsProcessor(), message, b"as sent", 1)
    Sampling().sampler.admit(arrival)
    assert (arrival.message, arrival.body) == (message, b"as sent")


def test_a_held_span_does_not_go_on_because_a_late_one_of_another_trace_has_its_id() -> None:
    sampling = Sampling()
    sampling.send({"trace_id": DRAWN})
    assert len(sampling.decided()) == 1
    other = DRAWN[:-1] + b"\x00"
    spans = (
        {"trace_id": trace, "name": name, "span_id": b"12345678"} for trace, name in ((DRAWN, "late"), (other, "held"))
    )
    both = tuple(spans)
    for _ in range(2):
        assert sampling.send(*both) == ["late"]
