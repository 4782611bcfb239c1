"""A trace for every request when tracing is on, from the same facts as its record."""

import asyncio
import gzip

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
AWAY = b"HTTP/1.1 503 Away\r\ncontent-length: 0\r\n\r\n"
TRACE, CALLER = "ab" * 16, "cd" * 8
TRACED = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=a1,other=b2"}


def gunzipped(request) -> bytes:
    return gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body


def sent_to(receiver) -> list:
    """Return the bodies that an OTLP receiver was sent as traces."""
    return [gunzipped(request) for request in receiver.requests if request.line.startswith("POST /v1/traces ")]


def spans_at(receiver) -> list:
    """Return every span that an OTLP receiver has."""
    parsed = [ExportTraceServiceRequest.FromString(body) for body in sent_to(receiver)]
    resources = [resource for one in parsed for resource in one.resource_spans]
    return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]


def attributes_of(span) -> dict:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def start(start_gateway, upstream):
    """Start a gateway that sends its spans to `upstream`, which takes everything."""

    async def start(config, **settings):
        upstream.always(OK)
        return await start_gateway(config, collector_url=f"http://127.0.0.1:{upstream.port}", tracing=True, **settings)

    return start


async def test_a_span_says_what_the_record_says(start, kit, upstream):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=4)])))
    await gateway.chat(stream=True, headers=TRACED)
    await gateway.gateway.stop()
    [body] = sent_to(upstream)
    span, attempt = spans_at(upstream)
    attributes = attributes_of(span)
    assert span.name == "chat scripted-1" and span.trace_id.hex() == TRACE
    assert (span.parent_span_id.hex(), span.trace_state) == (CALLER, TRACED["tracestate"])
    assert attributes["gen_ai.usage.output_tokens"] == 4
    assert attributes["tollkeeper.tenant.id"] == "acme"
    assert [event.name for event in span.events] == ["tollkeeper.first_token"]
    assert (attempt.name, attempt.parent_span_id, attempt.trace_state) == (
        "gateway.attempt",
        span.span_id,
        TRACED["tracestate"],
    )
    assert "gen_ai.usage.output_tokens" not in attributes_of(attempt)
    assert b"one two three" not in body


@pytest.mark.parametrize("stream", [True, False])
async def test_one_trace_leads_from_the_callers_span_to_the_engines_decode(start, kit, upstream, engine_host, stream):
    targets = [{"name": "e1", "kind": "engine", "url": engine_host.url}]
    config = kit.configuration(("tollkeeper-5m", targets), guardrails=[DENY])
    config["pools"][0]["queue"] = {"max_in_flight": 1}
    gateway = await start(config)
    async with asyncio.timeout(180):
        while not gateway.gateway.is_engine_ready("default"):
            await asyncio.sleep(0.05)
    first, second = [
        asyncio.create_task(gateway.chat(model="tollkeeper-5m", max_tokens=8, stream=stream, headers=TRACED))
        for _ in range(2)
    ]
    assert {(await first).status, (await second).status} == {200}
    await gateway.gateway.stop()
    spans = spans_at(upstream)
    requests = [span for span in spans if span.name == "chat tollkeeper-5m"]
    assert [span.parent_span_id.hex() for span in requests] == [CALLER, CALLER]
    for request in requests:
        below = [span for span in spans if is_below(span, request, spans)]
        assert len(below) <= 10
        names = {span.name for span in below}
        assert {"gateway.guardrails", "gateway.attempt", "engine.prefill", "engine.decode"} <= names
        [attempt] = [span for span in below if span.name == "gateway.attempt"]
        phases = {span.name: span for span in below if span.parent_span_id == attempt.span_id}
        prefill, decode = phases["engine.prefill"], phases["engine.decode"]
        assert prefill.end_time_unix_nano == decode.start_time_unix_nano == attempt.events[0].time_unix_nano
        for span in below:
            assert request.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= request.end_time_unix_nano + 1_000_000
            assert attributes_of(span)["tollkeeper.tenant.id"] == "acme"
    assert any(span.name == "gateway.queue" for span in spans)
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert len({span.span_id for span in spans}) == len(spans)


DENY = {"name": "p", "stages": [{"name": "s", "detector": "deny", "settings": {"keywords": ["forbidden"]}}]}


def is_below(span, request, spans) -> bool:
    """Return whether a span's parents lead to a request's."""
    by_id = {one.span_id: one for one in spans}
    while span.parent_span_id in by_id:
        span = by_id[span.parent_span_id]
        if span is request:
            return True
    return False


async def test_an_attempt_has_a_span_that_says_why_it_failed_and_ten_at_most_are_below_a_request(start, kit, upstream):
    targets = [kit.scripted(f"s{number}", fault="refuse") for number in range(1, 12)] + [kit.scripted("good")]
    gateway = await start(kit.configuration(("scripted-1", targets)))
    await gateway.chat(headers=TRACED)
    await gateway.gateway.stop()
    request, *below = spans_at(upstream)
    attempts = [attributes_of(span) for span in below]
    made = attributes_of(request).get("tollkeeper.attempts.omitted", 0) + len(attempts)
    assert len(below) <= 10 and attempts[-1]["tollkeeper.attempt.number"] == made
    assert attempts[0]["error.type"] == "upstream_unreachable"
    assert all(span.parent_span_id == request.span_id for span in below)


@pytest.mark.parametrize("tracing", [True, False])
async def test_a_target_is_told_the_span_that_calls_it_and_the_callers_state(start_gateway, kit, upstream, tracing):
    upstream.always(upstream.whole(upstream.completion()))
    settings = {"collector_url": f"http://127.0.0.1:{upstream.port}", "tracing": True} if tracing else {}
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])), **settings)
    await gateway.chat(model="mock", headers={**TRACED, "traceparent": TRACED["traceparent"][:-1] + "0"})
    [asked] = [request for request in upstream.requests if request.line.startswith("POST /v1/chat/")]
    _, trace_id, span_id, flags = asked.headers["traceparent"].split("-")
    assert (trace_id, asked.headers["tracestate"]) == (TRACE, TRACED["tracestate"])
    if not tracing:
        [record] = gateway.requests()
        assert (span_id, flags) == (record.span_id.hex(), "00")  # the caller's trace is not sampled
        return
    await gateway.gateway.stop()
    assert flags == "01"
    [attempt] = [span for span in spans_at(upstream) if span.name == "gateway.attempt"]
    assert attempt.span_id.hex() == span_id


@pytest.mark.parametrize("fault", ["hangs", "away"])
async def test_an_endpoint_that_hangs_loses_no_span_that_fits_the_buffer(start, kit, upstream, fault, eventually):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=2)])))
    upstream.always("stall" if fault == "hangs" else AWAY)
    for _ in range(20):
        await gateway.chat(headers=TRACED)
    await eventually(lambda: len(sent_to(upstream)) > 0, 10)
    if fault == "hangs":  # a stopped process answers nothing and takes the bytes all the same
        await asyncio.sleep(0.2)
    upstream.always(OK)
    for side in tuple(upstream.open):
        side.transport.abort()
    await eventually(lambda: not gateway.gateway.health()["pending_spans"], 20)
    assert gateway.gateway.health()["dropped_spans"] == 0
    bodies = sent_to(upstream)
    assert bodies[0] == bodies[1]  # the same bytes again: the collector stores them once
    kept = {span.span_id for span in spans_at(upstream) if span.name == "chat scripted-1"}
    assert len(kept) == 20


async def test_spans_beyond_the_buffer_are_dropped_and_counted(start, kit, upstream):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=2)])), tracing_max_spans=4)
    upstream.always("stall")
    for _ in range(3):
        await gateway.chat(headers=TRACED)
    health = gateway.gateway.health()
    assert (health["pending_spans"], health["dropped_spans"]) == (4, 2)


async def test_without_tracing_no_span_is_sent(start_gateway, kit, upstream):
    upstream.always(OK)
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, collector_url=f"http://127.0.0.1:{upstream.port}")
    await gateway.chat()
    await gateway.gateway.stop()
    assert {request.line for request in upstream.requests} == {"POST /v1/logs HTTP/1.1"}


async def test_a_chat_with_a_plan_has_its_attempt(start, kit, upstream, eventually):
    gateway = await start(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    upstream.answering(lambda request: OK if "/v1/chat" not in request.line else upstream.whole(upstream.completion()))
    upstream._always = ()
    await gateway.chat(model="mock")
    await gateway.chat(model="mock")
    await gateway.gateway.stop()
    spans = spans_at(upstream)
    roots = [span for span in spans if not span.parent_span_id]
    assert len(roots) == 2 and len(spans) == 4
