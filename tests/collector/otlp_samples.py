"""Payloads of foreign senders, in the shape their exporters give them."""

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

NOW = 1_795_000_000_000_000_000

# One model call by each dialect's instrumentation: its scope, its span's name, and its attributes.
VLLM: Final[Mapping[str, Any]] = {
    "gen_ai.response.model": "tiny",
    "gen_ai.request.id": "cmpl-1",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.top_p": 1.0,
    "gen_ai.request.max_tokens": 64,
    "gen_ai.request.n": 1,
    "gen_ai.usage.num_sequences": 1,
    "gen_ai.usage.prompt_tokens": 120,
    "gen_ai.usage.completion_tokens": 30,
    "gen_ai.latency.time_in_queue": 0.002,
    "gen_ai.latency.time_to_first_token": 0.081,
    "gen_ai.latency.e2e": 0.9,
    "gen_ai.latency.time_in_model_prefill": 0.07,
    "gen_ai.latency.time_in_model_decode": 0.8,
}
OPENINFERENCE: Final[Mapping[str, Any]] = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "tiny",
    "llm.provider": "azure",
    "llm.invocation_parameters": '{"max_tokens": 64}',
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "a secret",
    "llm.output_messages.0.message.content": "another",
    "input.value": "a secret",
    "output.value": "another",
    "llm.tools.0.tool.json_schema": "{}",
    "llm.token_count.prompt": 120,
    "llm.token_count.completion": 30,
    "llm.token_count.total": 150,
    "llm.token_count.prompt_details.cache_read": 100,
    "llm.token_count.completion_details.reasoning": 7,
    "llm.cost.total": 0.25,
}
OPENLLMETRY: Final[Mapping[str, Any]] = {
    "llm.request.type": "completion",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "tiny",
    "gen_ai.response.model": "tiny-2026",
    "gen_ai.request.max_tokens": 64,
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "a secret",
    "gen_ai.completion.0.content": "another",
    "gen_ai.completion.0.finish_reason": "stop",
    "llm.headers": "authorization: Bearer abc",
    "llm.is_streaming": False,
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read_input_tokens": 100,
    "llm.usage.total_tokens": 150,
    "traceloop.workflow.name": "answers",
}
OLDER_SEMCONV: Final[Mapping[str, Any]] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "az.ai.inference",
    "gen_ai.request.model": "tiny",
    "gen_ai.usage.prompt_tokens": 120,
    "gen_ai.usage.completion_tokens": 30,
    "gen_ai.usage.cache_creation.input_tokens": 5,
    "gen_ai.openai.request.response_format": "json_schema",
    "gen_ai.openai.response.system_fingerprint": "fp_1",
}
CURRENT_SEMCONV: Final[Mapping[str, Any]] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "tiny",
    "gen_ai.input.messages": '[{"role": "user"}]',
    "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 30,
    "gen_ai.usage.cache_read.input_tokens": 100,
    "gen_ai.response.finish_reasons": ["stop"],
}


def any_value(value: Any) -> AnyValue:
    """Write a value as OTLP does."""
    if isinstance(value, list):
        written = AnyValue()
        written.array_value.values.extend(map(any_value, value))
        return written
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    return AnyValue(**{kinds[type(value)]: value})


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Write attributes as OTLP does."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def span_request(
    *spans: Mapping[str, Any], resource: Mapping[str, Any] | None = None, scope: str = ""
) -> ExportTraceServiceRequest:
    """Create a request of spans; fields that a span does not have are a sound one's."""
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    part.resource.attributes.extend(key_values(resource or {}))
    scoped = part.scope_spans.add()
    scoped.scope.name = scope
    for number, span in enumerate(spans, 1):
        fields = {
            "trace_id": number.to_bytes(16),
            "span_id": number.to_bytes(8),
            "name": "n",
            "start_time_unix_nano": NOW - 5,
            "end_time_unix_nano": NOW,
            **span,
        }
        attributes = fields.pop("attributes", {})
        scoped.spans.add(**fields).attributes.extend(key_values(attributes))
    return request


def gauge_request(name: str, *points: tuple[Mapping[str, Any], float]) -> ExportMetricsServiceRequest:
    """Create a request of one gauge's points."""
    request = ExportMetricsServiceRequest()
    gauge = request.resource_metrics.add().scope_metrics.add().metrics.add(name=name).gauge
    for attributes, value in points:
        gauge.data_points.add(time_unix_nano=NOW, as_double=value).attributes.extend(key_values(attributes))
    return request
