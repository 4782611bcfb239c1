"""A span for every request when tracing is on, from the same facts as its record."""

import gzip

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


async def test_a_span_says_what_the_record_says(start_gateway, kit, upstream):
    upstream.always(OK)
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=4)]))
    gateway = await start_gateway(config, collector_url=f"http://127.0.0.1:{upstream.port}", tracing=True)
    await gateway.chat(stream=True, headers={"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"})
    await gateway.gateway.stop()
    [sent] = [request for request in upstream.requests if request.line.startswith("POST /v1/traces ")]
    parsed = ExportTraceServiceRequest.FromString(gunzipped(sent))
    [span] = parsed.resource_spans[0].scope_spans[0].spans
    attributes = {attribute.key: attribute.value for attribute in span.attributes}
    assert span.name == "chat scripted-1" and span.trace_id.hex() == "ab" * 16
    assert attributes["gen_ai.usage.output_tokens"].int_value == 4
    assert attributes["tollkeeper.tenant.id"].string_value == "acme"
    assert "one two three" not in str(parsed)


def gunzipped(request) -> bytes:
    return gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body


async def test_without_tracing_no_span_is_sent(start_gateway, kit, upstream):
    upstream.always(OK)
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, collector_url=f"http://127.0.0.1:{upstream.port}")
    await gateway.chat()
    await gateway.gateway.stop()
    assert {request.line for request in upstream.requests} == {"POST /v1/logs HTTP/1.1"}
