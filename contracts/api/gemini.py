"""Types of Google's Gemini API: what an application sends. Names follow its REST reference, in camelCase."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from contracts.api.chat import ChoiceCount, Penalty, PositiveInt, Probability, Seed, Temperature

MAX_PARTS = 10_000  # per request
MAX_FUNCTIONS = 1000

FunctionMode = Literal["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"]


class Blob(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes, as base64."""

    mime_type: Annotated[str, Meta(min_length=1, max_length=100)]
    data: str


class GeminiCall(msgspec.Struct, frozen=True, rename="camel"):
    """A model's function call, returned to it."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    args: dict[str, Any] | None = None
    id: str | None = None


class GeminiResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a function call."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    response: msgspec.Raw = msgspec.Raw(b"{}")
    id: str | None = None


class GeminiPart(msgspec.Struct, frozen=True, rename="camel"):
    """One part of a content: one of these fields is set."""

    text: str | None = None
    inline_data: Blob | None = None
    function_call: GeminiCall | None = None
    function_response: GeminiResult | None = None
    thought: bool | None = None
    file_data: Any = None
    executable_code: Any = None
    code_execution_result: Any = None


class GeminiContent(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    parts: list[GeminiPart] = []
    role: Literal["user", "model", "function", "system"] | None = None


class FunctionDeclaration(msgspec.Struct, frozen=True, rename="camel"):
    """A function that the application runs. Its parameters are an OpenAPI or JSON schema."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None


class GeminiTool(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A tool with functions. Tools that run at Google have other fields."""

    function_declarations: list[FunctionDeclaration] = []


class FunctionCallingConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Whether functions may or must be called."""

    mode: FunctionMode | None = None
    allowed_function_names: list[str] | None = None


class ToolConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Settings for the use of tools."""

    function_calling_config: FunctionCallingConfig | None = None


class ThinkingConfig(msgspec.Struct, frozen=True, rename="camel"):
    """How much the model reasons, and whether the answer shows it."""

    include_thoughts: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    thinking_level: str | None = None


class GenerationConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Generation settings."""

    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_k: Annotated[float, Meta(ge=0, le=2**31 - 1)] | None = None
    candidate_count: ChoiceCount | None = None
    max_output_tokens: PositiveInt | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=16)] | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    thinking_config: ThinkingConfig | None = None
    response_modalities: list[str] | None = None


class EmbedConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings of an embedding, in the place where newer clients put them."""

    task_type: str | None = None
    title: str | None = None
    output_dimensionality: PositiveInt | None = None
    auto_truncate: bool | None = None


class EmbedRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of embedContent. The model is in the path."""

    content: GeminiContent
    model: str | None = None
    task_type: str | None = None
    title: str | None = None
    output_dimensionality: PositiveInt | None = None
    embed_content_config: EmbedConfig | None = None

    @property
    def dimensions(self) -> int | None:
        """Return the requested length of the vector."""
        config = self.embed_content_config
        return self.output_dimensionality or (None if config is None else config.output_dimensionality)

    @property
    def purpose(self) -> tuple[str, str] | None:
        """Return the first field that states the vector's purpose, with its value; `None` if none does."""
        for holder in (self, self.embed_content_config):
            if holder is not None and holder.task_type not in (None, "TASK_TYPE_UNSPECIFIED"):
                return "taskType", str(holder.task_type)
            if holder is not None and holder.title is not None:
                return "title", holder.title
        return None


class BatchEmbedRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of batchEmbedContents."""

    requests: Annotated[list[EmbedRequest], Meta(min_length=1)]


class GeminiRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of generateContent, streamGenerateContent and countTokens. The model is in the path."""

    contents: Annotated[list[GeminiContent], Meta(min_length=1)]
    model: str | None = None
    system_instruction: GeminiContent | str | None = None
    tools: list[GeminiTool] | None = None
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None
    safety_settings: Any = None  # Google's filters, which other models lack
    labels: Any = None  # bookkeeping
    cached_content: str | None = None  # not offered

    @property
    def shows_thinking(self) -> bool:
        """Return whether the answer should include the model's reasoning."""
        config = self.generation_config
        thinking = None if config is None else config.thinking_config
        return thinking is not None and thinking.include_thoughts is True
