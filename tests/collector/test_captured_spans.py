"""Spans as instrumentations of OpenAI's client sent them, captured from a chat, a stream and an embedding.

Each file says which instrumentation in which version. What was asked and answered had "a secret" in it.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from collector.processors.spans import SpansProcessor
from collector.spool import SpooledBatch
from contracts.recording.telemetry import SpanRow
from tests.collector.otlp_samples import NOW, key_values, span_request

CAPTURED = Path(__file__).parent / "captured"
DIALECTS = ("openinference", "openllmetry", "semconv")


def stored(dialect: str) -> list[SpanRow]:
    spans: list[dict[str, Any]] = json.loads((CAPTURED / f"{dialect}.json").read_text())["spans"]
    message = span_request(*({"name": span["name"], "attributes": span["attributes"]} for span in spans))
    sent = message.resource_spans[0].scope_spans[0].spans
    for span, made in zip(spans, sent, strict=True):
        for event in span["events"]:
            made.events.add(name=event["name"]).attributes.extend(key_values(event["attributes"]))
    processed = SpansProcessor().process(SpooledBatch("b", "traces", NOW, message.SerializeToString()))
    return list(processed.tables["traces"].rows)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_captured_chat_and_its_stream_tell_the_same_whoever_instrumented_them(dialect: str) -> None:
    chat, stream, _ = stored(dialect)
    for row in (chat, stream):
        assert row.attributes["gen_ai.operation.name"] == "chat"
        assert row.attributes["gen_ai.provider.name"] == "openai"
        assert "tiny" in row.attributes["gen_ai.request.model"]
        assert row.attributes["gen_ai.usage.input_tokens"] == "120"
        assert row.attributes["gen_ai.usage.output_tokens"] == "30"
    assert "stop" in chat.attributes["gen_ai.response.finish_reasons"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_captured_embedding_is_one(dialect: str) -> None:
    *_, embedding = stored(dialect)
    assert embedding.attributes["gen_ai.operation.name"] == "embeddings"
    assert embedding.attributes["gen_ai.request.model"] == "small-embedding"
    assert embedding.attributes["gen_ai.usage.input_tokens"] == "5"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_that_was_said_is_stored_of_captured_spans(dialect: str) -> None:
    assert "a secret" in (CAPTURED / f"{dialect}.json").read_text() or dialect == "semconv"
    for row in stored(dialect):
        assert "secret" not in json.dumps([row.attributes, row.event_attributes])


@pytest.mark.parametrize("dialect", ["openinference", "openllmetry"])
def test_what_was_cached_and_reasoned_is_read_where_it_is_told(dialect: str) -> None:
    chat, *_ = stored(dialect)
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == "100"
    assert chat.attributes["gen_ai.usage.reasoning.output_tokens"] == "7"


def test_openllmetry_says_what_is_a_stream() -> None:
    chat, stream, _ = stored("openllmetry")
    assert [row.attributes["gen_ai.request.stream"] for row in (chat, stream)] == ["false", "true"]
