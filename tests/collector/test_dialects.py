"""Every dialect's model call reads alike once it is stored, and none brings what was said."""

from collections.abc import Mapping
from typing import Any

import pytest

from collector.processors.spans import SpansProcessor
from collector.spool import SpooledBatch
from contracts.recording.dialects import SPELLINGS, reading_of
from tests.collector.otlp_samples import (
    CURRENT_SEMCONV,
    NOW,
    OLDER_SEMCONV,
    OPENINFERENCE,
    OPENLLMETRY,
    VLLM,
    span_request,
)

TOKENS = {"gen_ai.usage.input_tokens": "120", "gen_ai.usage.output_tokens": "30"}


def stored(attributes: Mapping[str, Any]) -> dict[str, str]:
    body = span_request({"attributes": attributes}).SerializeToString()
    processed = SpansProcessor().process(SpooledBatch("b", "traces", NOW, body))
    found: dict[str, str] = processed.tables["traces"].rows[0].attributes
    return found


@pytest.mark.parametrize(
    "attributes", [VLLM, OPENINFERENCE, OPENLLMETRY, OLDER_SEMCONV, CURRENT_SEMCONV], ids=lambda one: next(iter(one))
)
def test_every_dialect_tells_its_tokens_under_one_name_and_nothing_that_was_said(attributes: Mapping[str, Any]) -> None:
    found = stored(attributes)
    assert found.items() >= TOKENS.items()
    assert not [value for value in found.values() if "a secret" in value or "another" in value or "Bearer" in value]


def test_vllms_own_spans_are_read() -> None:
    found = stored(VLLM)
    assert found["gen_ai.response.id"] == "cmpl-1"
    assert found["gen_ai.response.time_to_first_chunk"] == "0.081"
    assert found["gen_ai.request.choice.count"] == "1"
    assert found["gen_ai.latency.time_in_model_prefill"] == "0.07"


def test_openinference_is_read() -> None:
    found = stored(OPENINFERENCE)
    assert (found["gen_ai.operation.name"], found["gen_ai.provider.name"]) == ("chat", "azure.ai.openai")
    assert (found["gen_ai.request.model"], found["gen_ai.usage.cost.amount"]) == ("tiny", "0.25")
    assert found["gen_ai.usage.cache_read.input_tokens"] == "100"
    assert found["gen_ai.usage.reasoning.output_tokens"] == "7"
    assert found["llm.token_count.total"] == "150"


def test_openllmetry_is_read() -> None:
    found = stored(OPENLLMETRY)
    assert (found["gen_ai.operation.name"], found["gen_ai.provider.name"]) == ("text_completion", "openai")
    assert found["gen_ai.usage.cache_read.input_tokens"] == "100"
    assert found["gen_ai.request.stream"] == "false"
    assert found["llm.headers"] == "[redacted]"
    assert found["traceloop.workflow.name"] == "answers"


def test_the_conventions_of_before_are_read() -> None:
    found = stored(OLDER_SEMCONV)
    assert found["gen_ai.provider.name"] == "azure.ai.inference"
    assert found["gen_ai.usage.cache_write.input_tokens"] == "5"
    assert found["gen_ai.output.type"] == "json"
    assert found["openai.response.system_fingerprint"] == "fp_1"


def test_a_provider_that_no_table_knows_is_kept_as_it_is() -> None:
    assert stored({"gen_ai.system": "Somebody.New"})["gen_ai.provider.name"] == "Somebody.New"


def test_no_foreign_name_is_a_current_one_too_and_each_is_in_the_table_once() -> None:
    foreign = [one.foreign for one in SPELLINGS]
    assert len(foreign) == len(set(foreign))
    assert not set(foreign) & {one.current for one in SPELLINGS}


@pytest.mark.parametrize(
    ("name", "treatment"),
    [
        ("http.request.header.authorization", "redact"),
        ("db.password", "redact"),
        ("openai.api_key", "redact"),
        ("llm.headers", "redact"),
        ("gen_ai.usage.input_tokens", "keep"),
        ("cookie.count", "keep"),
        ("app.secretary", "keep"),
    ],
)
def test_the_values_of_credentials_are_replaced_by_their_names(name: str, treatment: str) -> None:
    assert reading_of(name).treatment == treatment
