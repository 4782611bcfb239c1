"""Types of Anthropic's Messages API: what an application sends. Names and ranges follow its SDK's types.

As with chats, fields that the gateway does not evaluate are not typed; here they are dropped, because no target gets
the original body. Fields that no target can honour are typed anyway, so that they can be refused by name.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from contracts.api.chat import PositiveInt, Probability

MAX_BLOCKS: Final = 10_000  # in one request's messages: each costs the gateway about ten microseconds
MAX_TOOLS: Final = 1000
LEAST_THINKING_TOKENS: Final = 1024

Role = Literal["user", "assistant", "system"]
Lifetime = Literal["5m", "1h"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Display = Literal["summarized", "omitted"]
ServiceTier = Literal["auto", "standard_only"]
ImageType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
Name = Annotated[str, Meta(min_length=1, max_length=128)]


class CacheControl(msgspec.Struct, frozen=True, tag="ephemeral", gc=False):
    """Marks the end of a prefix to keep in the prompt cache, and for how long."""

    ttl: Lifetime | None = None


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """Text."""

    text: str
    cache_control: CacheControl | None = None


class ImageData(msgspec.Struct, frozen=True, tag="base64", gc=False):
    """An image's bytes."""

    media_type: ImageType
    data: str


class Url(msgspec.Struct, frozen=True, tag="url", gc=False):
    """The address of a resource."""

    url: Annotated[str, Meta(min_length=1)]


class ImageBlock(msgspec.Struct, frozen=True, tag="image"):
    """An image."""

    source: ImageData | Url
    cache_control: CacheControl | None = None


class PdfData(msgspec.Struct, frozen=True, tag="base64", gc=False):
    """A PDF document's bytes."""

    media_type: Literal["application/pdf"]
    data: str


class PlainText(msgspec.Struct, frozen=True, tag="text", gc=False):
    """A document of text."""

    data: str
    media_type: Literal["text/plain"] = "text/plain"


class Contents(msgspec.Struct, frozen=True, tag="content"):
    """A document composed of blocks."""

    content: str | list[TextBlock | ImageBlock]


class Citations(msgspec.Struct, frozen=True, gc=False):
    """Whether the answer should cite a document."""

    enabled: bool | None = None


class DocumentBlock(msgspec.Struct, frozen=True, tag="document"):
    """A document, with its title and context."""

    source: PdfData | PlainText | Contents | Url
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None
    cache_control: CacheControl | None = None


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    """A model's tool call, returned to it. `input` is a JSON object."""

    id: Annotated[str, Meta(min_length=1)]
    name: Name
    input: msgspec.Raw
    cache_control: CacheControl | None = None


class ToolReferenceBlock(msgspec.Struct, frozen=True, tag="tool_reference", gc=False):
    """A tool that the application's tool search found: from here on the model may call it."""

    tool_name: Name
    cache_control: CacheControl | None = None


class ToolResultBlock(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a tool call."""

    tool_use_id: Annotated[str, Meta(min_length=1)]
    content: str | list[TextBlock | ImageBlock | DocumentBlock | ToolReferenceBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking", gc=False):
    """A model's reasoning, returned to it. Only the provider that signed it can use it."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(msgspec.Struct, frozen=True, tag="redacted_thinking", gc=False):
    """A model's reasoning, readable only by its provider."""

    data: str


Block = TextBlock | ImageBlock | DocumentBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock
AnyBlock = Block | ToolReferenceBlock  # in a message, or in a tool's result


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    content: str | list[Block]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the application runs. Anthropic's own tools have another `type` than "custom".

    `defer_loading`: the model does not see it before a `tool_reference` names it.
    """

    name: Name
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw()  # a JSON schema of an object
    strict: bool | None = None
    cache_control: CacheControl | None = None
    defer_loading: bool | None = None


class AutoChoice(msgspec.Struct, frozen=True, tag="auto", gc=False):
    """The model decides whether to call a tool."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(msgspec.Struct, frozen=True, tag="any", gc=False):
    """The model must call some tool."""

    disable_parallel_tool_use: bool | None = None


class NamedChoice(msgspec.Struct, frozen=True, tag="tool", gc=False):
    """The model must call the named tool."""

    name: Name
    disable_parallel_tool_use: bool | None = None


class NoChoice(msgspec.Struct, frozen=True, tag="none", gc=False):
    """The model must call no tool."""


class BudgetedThinking(msgspec.Struct, frozen=True, tag="enabled", gc=False):
    """The model may reason, for at most this many tokens."""

    budget_tokens: Annotated[int, Meta(ge=LEAST_THINKING_TOKENS, le=2**31 - 1)]
    display: Display | None = None


class AdaptiveThinking(msgspec.Struct, frozen=True, tag="adaptive", gc=False):
    """The model decides how much it reasons."""

    display: Display | None = None


class NoThinking(msgspec.Struct, frozen=True, tag="disabled", gc=False):
    """The model does not reason."""


class JsonFormat(msgspec.Struct, frozen=True, tag="json_schema"):
    """The answer's text must be JSON of this schema."""

    schema: msgspec.Raw


class OutputConfig(msgspec.Struct, frozen=True):
    """Requirements for the answer."""

    effort: Effort | None = None
    format: JsonFormat | None = None


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """Who sends the request, in the application's words."""

    user_id: Annotated[str, Meta(max_length=1024)] | None = None


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST /v1/messages/count_tokens: everything that a model reads."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_BLOCKS)]
    system: str | Annotated[list[TextBlock], Meta(max_length=MAX_BLOCKS)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: AutoChoice | AnyChoice | NamedChoice | NoChoice | None = None
    thinking: BudgetedThinking | AdaptiveThinking | NoThinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None  # the earlier name of `output_config.format`
    cache_control: CacheControl | None = None  # applies to the last block that may have one
    speed: str | None = None

    @property
    def shows_thinking(self) -> bool:
        """Return whether the answer should include the model's reasoning: only if reasoning was requested."""
        wanted = self.thinking
        return isinstance(wanted, BudgetedThinking | AdaptiveThinking) and wanted.display != "omitted"

    @property
    def loaded_tools(self) -> list[Tool]:
        """Return the tools that the model sees: all but those that are deferred and not yet referred to."""
        tools = self.tools or []
        if not any(tool.defer_loading for tool in tools):
            return tools
        referred = {
            part.tool_name
            for message in self.messages
            if not isinstance(message.content, str)
            for block in message.content
            if isinstance(block, ToolResultBlock) and isinstance(block.content, list)
            for part in block.content
            if isinstance(part, ToolReferenceBlock)
        }
        return [tool for tool in tools if not tool.defer_loading or tool.name in referred]

    @property
    def format(self) -> JsonFormat | None:
        """Return the format that the answer must match."""
        return (self.output_config.format if self.output_config is not None else None) or self.output_format


class MessagesRequest(Prompt, frozen=True, kw_only=True):
    """The body of POST /v1/messages."""

    max_tokens: PositiveInt
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    metadata: Metadata | None = None
    service_tier: ServiceTier | None = None
    # Not supported: each would change the answer.


class MessagesFields(msgspec.Struct, frozen=True):
    """The fields of a Messages API request that the gateway evaluates."""

    model: str
    messages: msgspec.Raw
    max_tokens: PositiveInt | None = None
    stream: bool | None = None
    temperature: Any = None
    tools: list[msgspec.Raw] | None = None
    thinking: Any = None
    output_config: Any = None
    metadata: Any = None
    service_tier: Any = None
    speed: Any = None
