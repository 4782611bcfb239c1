"""Maps other spellings of GenAI attributes, and some of their values, to those that are stored.

Sources: semantic-conventions-genai (state of November 2026) and main's registry up to 1.41, OpenInference's semantic
conventions, OpenLLMetry's `opentelemetry-semantic-conventions-ai`, vLLM 0.25 to 0.33 (`vllm/tracing`). An attribute
that is not in the table keeps its name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

Dialect = Literal["semconv before 2026", "vllm", "openinference", "openllmetry"]
Treatment = Literal["keep", "drop", "redact"]

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
COST_AMOUNT: Final = "gen_ai.usage.cost.amount"
COST_CURRENCY: Final = "gen_ai.usage.cost.currency"
COST_SOURCE: Final = "gen_ai.usage.cost.source"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"

_REMEMBERED_NAMES: Final = 8192  # distinct attribute names; an application has hundreds


@dataclass(frozen=True, slots=True)
class Spelling:
    """A foreign name, the name under which it is stored, and values that differ too (compared in lower case)."""

    dialect: Dialect
    foreign: str
    current: str
    values: Mapping[str, str] = field(default_factory=dict)


# Providers by the conventions' names, with the names of older instrumentations.
_PROVIDERS: Final = {
    "aws": "aws.bedrock",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "az.ai.openai": "azure.ai.openai",
    "az.ai.inference": "azure.ai.inference",
    "google": "gcp.gemini",
    "gemini": "gcp.gemini",
    "vertexai": "gcp.vertex_ai",
    "vertex_ai": "gcp.vertex_ai",
    "mistralai": "mistral_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "perplexityai": "perplexity",
    "watsonx": "ibm.watsonx.ai",
    "openai": "openai",
    "anthropic": "anthropic",
    "cohere": "cohere",
    "groq": "groq",
    "deepseek": "deepseek",
}
_OPERATIONS: Final = {
    "llm": "chat",
    "completion": "text_completion",
    "embedding": "embeddings",
    "agent": "invoke_agent",
    "tool": "execute_tool",
    "retriever": "retrieval",
    "workflow": "invoke_workflow",
    "chain": "invoke_workflow",
}
_FORMATS: Final = {"json_object": "json", "json_schema": "json"}

SPELLINGS: Final[tuple[Spelling, ...]] = (
    Spelling("semconv before 2026", "gen_ai.system", PROVIDER_NAME, _PROVIDERS),
    Spelling("semconv before 2026", "gen_ai.usage.prompt_tokens", INPUT_TOKENS),
    Spelling("semconv before 2026", "gen_ai.usage.completion_tokens", OUTPUT_TOKENS),
    Spelling("semconv before 2026", "gen_ai.usage.cache_creation.input_tokens", CACHE_WRITE_TOKENS),
    Spelling("semconv before 2026", "gen_ai.response.finish_reason", FINISH_REASONS),
    Spelling("semconv before 2026", "gen_ai.openai.request.response_format", "gen_ai.output.type", _FORMATS),
    Spelling("semconv before 2026", "gen_ai.openai.request.seed", "gen_ai.request.seed"),
    Spelling("semconv before 2026", "gen_ai.openai.request.service_tier", "openai.request.service_tier"),
    Spelling("semconv before 2026", "gen_ai.openai.response.service_tier", "openai.response.service_tier"),
    Spelling("semconv before 2026", "gen_ai.openai.response.system_fingerprint", "openai.response.system_fingerprint"),
    Spelling("vllm", "gen_ai.request.id", RESPONSE_ID),
    Spelling("vllm", "gen_ai.request.n", REQUEST_CHOICE_COUNT),
    Spelling("vllm", "gen_ai.latency.time_to_first_token", TIME_TO_FIRST_CHUNK),
    Spelling("openllmetry", "gen_ai.usage.cache_read_input_tokens", CACHE_READ_TOKENS),
    Spelling("openllmetry", "gen_ai.usage.cache_creation_input_tokens", CACHE_WRITE_TOKENS),
    Spelling("openllmetry", "gen_ai.usage.reasoning_tokens", REASONING_TOKENS),
    Spelling("openllmetry", "llm.request.type", OPERATION_NAME, _OPERATIONS),
    Spelling("openllmetry", "traceloop.span.kind", OPERATION_NAME, _OPERATIONS),
    Spelling("openllmetry", "llm.vendor", PROVIDER_NAME, _PROVIDERS),
    Spelling("openllmetry", "llm.request.model", REQUEST_MODEL),
    Spelling("openllmetry", "llm.response.model", RESPONSE_MODEL),
    Spelling("openllmetry", "llm.request.max_tokens", REQUEST_MAX_TOKENS),
    Spelling("openllmetry", "llm.temperature", REQUEST_TEMPERATURE),
    Spelling("openllmetry", "llm.top_p", "gen_ai.request.top_p"),
    Spelling("openllmetry", "llm.top_k", "gen_ai.request.top_k"),
    Spelling("openllmetry", "llm.frequency_penalty", "gen_ai.request.frequency_penalty"),
    Spelling("openllmetry", "llm.presence_penalty", "gen_ai.request.presence_penalty"),
    Spelling("openllmetry", "llm.chat.stop_sequences", "gen_ai.request.stop_sequences"),
    Spelling("openllmetry", "llm.is_streaming", REQUEST_STREAM),
    Spelling("openllmetry", "gen_ai.is_streaming", REQUEST_STREAM),
    Spelling("openllmetry", "llm.response.finish_reason", FINISH_REASONS),
    Spelling("openllmetry", "llm.response.stop_reason", FINISH_REASONS),
    Spelling("openllmetry", "llm.usage.prompt_tokens", INPUT_TOKENS),
    Spelling("openllmetry", "llm.usage.completion_tokens", OUTPUT_TOKENS),
    Spelling("openllmetry", "traceloop.association.properties.session_id", CONVERSATION_ID),
    Spelling("openinference", "openinference.span.kind", OPERATION_NAME, _OPERATIONS),
    Spelling("openinference", "llm.model_name", REQUEST_MODEL),
    Spelling("openinference", "embedding.model_name", REQUEST_MODEL),
    Spelling("openinference", "llm.provider", PROVIDER_NAME, _PROVIDERS),
    Spelling("openinference", "llm.system", PROVIDER_NAME, _PROVIDERS),
    Spelling("openinference", "llm.finish_reason", FINISH_REASONS),
    Spelling("openinference", "llm.token_count.prompt", INPUT_TOKENS),
    Spelling("openinference", "llm.token_count.completion", OUTPUT_TOKENS),
    Spelling("openinference", "llm.token_count.prompt_details.cache_read", CACHE_READ_TOKENS),
    Spelling("openinference", "llm.token_count.prompt_details.cache_write", CACHE_WRITE_TOKENS),
    Spelling("openinference", "llm.token_count.completion_details.reasoning", REASONING_TOKENS),
    Spelling("openinference", "llm.cost.total", COST_AMOUNT),
    Spelling("openinference", "tool.name", TOOL_NAME),
)
_BY_NAME: Final = {spelling.foreign: spelling for spelling in SPELLINGS}

# Attributes that contain prompts or answers. They are not stored.
CONTENT_ATTRIBUTES: Final = frozenset(
    {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.prompt",
        "gen_ai.completion",
        "gen_ai.event.content",
    }
)
CONTENT_EVENT_PREFIX: Final = "gen_ai."  # the bodies of these events contain prompts or answers
# The same in the spellings of OpenLLMetry, OpenInference and Vercel's SDK: whole families, numbered by message.
CONTENT_FAMILIES: Final = re.compile(
    r"(gen_ai\.(prompt|completion)\.\d|traceloop\.entity\.(input|output)$|(input|output)\.value$"
    r"|llm\.(prompts?|completions?|input_messages|output_messages|prompt_template\.variables|tools)(\.|$)"
    r"|retrieval\.documents\.|message\.content|ai\.(prompt|response\.(text|object|toolCalls)|toolCall\.(args|result)))"
    r"|embedding\.embeddings\.|reranker\.(input|output)_documents\."
)
# Names whose values are credentials.
CREDENTIALS: Final = re.compile(
    r"(^|[._-])(authorization|(set-)?cookie|x-api-key|api[_-]?key|apikey|password|passwd|secret|client_secret"
    r"|access_token|refresh_token|private_key|llm\.headers)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How to treat an attribute: `name` is the one to store it under."""

    name: str
    is_current: bool
    treatment: Treatment = "keep"
    values: Mapping[str, str] = field(default_factory=dict)
    is_plain: bool = False  # kept unchanged, under its own name


@lru_cache(maxsize=_REMEMBERED_NAMES)
def reading_of(name: str) -> Reading:
    """Return how to read an attribute. A pure function of its name, cached: names are few and spans are many."""
    if name in CONTENT_ATTRIBUTES or CONTENT_FAMILIES.match(name):
        return Reading(name, True, "drop")
    if CREDENTIALS.search(name):
        return Reading(name, True, "redact")
    spelling = _BY_NAME.get(name)
    if spelling is None:
        return Reading(name, True, is_plain=True)
    return Reading(spelling.current, False, values=spelling.values)
