"""Chat types in OpenAI's format: what an application sends, and the parts of an answer.

Only fields that the gateway evaluates are typed; unknown fields stay in the body, which is forwarded unchanged. Limits
on values follow OpenAI's API reference (October 2026) where it states them.
"""

from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import msgspec
from msgspec import Meta

from contracts.api.native import NativeBody
from contracts.errors import InvalidRequest
from contracts.metering.usage import OpenAIUsage
from contracts.pricing.service_tiers import MAX_TIER_LENGTH, tier_name

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Final[tuple[ReasoningEffort, ...]] = get_args(ReasoningEffort)  # lowest first

PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
ChoiceCount = Annotated[int, Meta(ge=1, le=128)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Extensions of vLLM's server, which its users send as additional fields of the body (its documentation, 0.25).
NotNegative = Annotated[int, Meta(ge=0, le=2**31 - 1)]
RepetitionPenalty = Annotated[float, Meta(ge=0.01, le=100)]  # smaller ones overflow a logit in float32


class ContentPart(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content. `type` decides which field is set; images, audio and files are not parsed."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: msgspec.Raw = msgspec.Raw()
    input_audio: msgspec.Raw = msgspec.Raw()
    file: msgspec.Raw = msgspec.Raw()


class FunctionCall(msgspec.Struct, frozen=True, gc=False):
    """The function an assistant's tool call names, with its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call in an assistant's message."""

    id: str
    type: str = "function"
    function: FunctionCall | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation."""

    role: Role
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


class StreamOptions(msgspec.Struct, frozen=True, gc=False):
    """What a stream contains besides content."""

    include_usage: bool | None = None


class StructuredOutputs(msgspec.Struct, frozen=True):
    """What the output must match: one of these. An extension of vLLM."""

    json: dict[str, Any] | str | None = None  # a schema, or its JSON text
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ModelRequest(msgspec.Struct, frozen=True, gc=False):
    """The common field of all requests: the model that they ask for."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]

    @property
    def asked_tier(self) -> str:
        """Return the requested service tier, as price cards name it; empty: none, or the standard one."""
        return ""


class InputRequest(ModelRequest, frozen=True, kw_only=True):
    """The common fields of requests that generate nothing: the answer is never streamed, and only input is billed."""

    user: Annotated[str, Meta(max_length=256)] | None = None

    @property
    def is_streamed(self) -> bool:
        """Return False: the answer is not streamed."""
        return False

    @property
    def output_limit(self) -> int | None:
        """Return `None`: nothing is generated."""
        return None

    @property
    def choice_count(self) -> int:
        """Return 1: there is one answer."""
        return 1

    @property
    def temperature(self) -> float | None:
        """Return `None`: nothing is sampled."""
        return None


class GenerationRequest(ModelRequest, frozen=True, kw_only=True):
    """The common fields of requests for generated text, for every form of prompt."""

    prompt_field: ClassVar[str] = "messages"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    n: ChoiceCount | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    response_format: msgspec.Raw = msgspec.Raw()
    user: Annotated[str, Meta(max_length=256)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None  # -1 and 0: all tokens
    min_p: Probability | None = None
    repetition_penalty: RepetitionPenalty | None = None
    min_tokens: NotNegative | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    service_tier: Annotated[str, Meta(max_length=MAX_TIER_LENGTH)] | None = None
    speed: Annotated[str, Meta(max_length=MAX_TIER_LENGTH)] | None = None  # Anthropic's: "fast" has its own price

    @property
    def asked_tier(self) -> str:
        """Return the requested service tier, as price cards name it; "auto" if the provider may choose."""
        if self.speed and (speed := tier_name(self.speed)):
            return speed
        return tier_name(self.service_tier) if self.service_tier else ""

    @property
    def is_streamed(self) -> bool:
        """Return whether the caller wants a stream."""
        return self.stream is True

    @property
    def wants_usage(self) -> bool:
        """Return whether the caller wants the usage chunk at a stream's end."""
        options = self.stream_options
        return options is not None and options.include_usage is True

    @property
    def stated_limits(self) -> tuple[int, ...]:
        """Return the maximum tokens of one choice as the caller states them, from all fields for it."""
        return () if self.max_tokens is None else (self.max_tokens,)

    @property
    def output_limit(self) -> int | None:
        """Return the maximum tokens of one choice."""
        return self.max_tokens

    @property
    def choice_count(self) -> int:
        """Return the number of requested choices."""
        return self.n or 1


class ChatRequest(GenerationRequest, frozen=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: msgspec.Raw = msgspec.Raw()
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    metadata: dict[str, str] | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None

    @property
    def stated_limits(self) -> tuple[int, ...]:
        """Return the maximum tokens of one choice as the caller states them: OpenAI's field has two names."""
        return tuple(limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None)

    @property
    def output_limit(self) -> int | None:
        """Return the maximum tokens of one choice; `max_completion_tokens` is OpenAI's newer name."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


class TranslatedChat(ChatRequest, frozen=True, kw_only=True):
    """A chat that was requested through another API.

    Targets and limits see a chat; `chat_body` replaces the application's body. `origin` is the original request, so
    that the answer can be translated back. `marked_body` is the chat with fields that only some servers understand
    (`cache_control`, `thinking_blocks`); empty if there are none. `native` is for targets that speak the API
    themselves, if there can be one; if it has a `refusal`, there is no translation, and `chat_body` is the original
    body. `dropped` are fields that the translation omits; if `unless_dropped` is set, the request may go only to
    targets whose settings allow dropping them, and others refuse it with that error. `chat_fields` are the top-level
    fields of `chat_body`, if it has been parsed.
    """

    chat_body: bytes
    origin: msgspec.Struct
    marked_body: bytes = b""
    native: NativeBody | None = None
    dropped: tuple[str, ...] = ()
    unless_dropped: InvalidRequest | None = None
    chat_fields: dict[str, msgspec.Raw] | None = None

    @property
    def wants_usage(self) -> bool:
        """Return that no usage chunk is wanted: the other API has its own place for usage, and no chunks of a chat."""
        return False


class DeltaPart(msgspec.Struct, frozen=True):
    """A part of a delta's content, if it is a list, as Mistral's reasoning models stream it."""

    type: str = ""
    text: str | None = None
    thinking: "str | list[DeltaPart] | None" = None

    @property
    def says_something(self) -> bool:
        """Return whether it contains output. A part of an unknown type does: it was sent for a reason."""
        return bool(self.text or self.thinking) or self.type not in ("text", "thinking", "")

    @property
    def thought(self) -> str:
        """Return its reasoning text."""
        if isinstance(self.thinking, list):
            return "".join(part.text or part.thought for part in self.thinking)
        return self.thinking or ""


class ChunkDelta(msgspec.Struct, frozen=True, gc=False):
    """What a chunk adds to one choice, as read from an upstream's stream."""

    content: str | list[DeltaPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()  # older than tool calls, still sent by older servers
    audio: msgspec.Raw = msgspec.Raw()
    thinking_blocks: msgspec.Raw = msgspec.Raw()  # Anthropic's, as LiteLLM adds them beside the reasoning

    @property
    def thought(self) -> str:
        """Return the reasoning that it adds, in any field."""
        if isinstance(self.content, list):
            return "".join(part.thought for part in self.content)
        return self.reasoning_content or self.reasoning or ""

    @property
    def text(self) -> str:
        """Return the visible text it adds."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""

    @property
    def bears_tokens(self) -> bool:
        """Return whether the delta contains generated tokens, rather than only a role or an end."""
        if isinstance(self.content, list):
            if any(part.says_something for part in self.content):
                return True
        elif self.content:
            return True
        return bool(
            self.reasoning_content
            or self.reasoning
            or self.refusal
            or _is_given(self.tool_calls)
            or _is_given(self.function_call)
            or _is_given(self.audio)
        )

    @property
    def is_reasoning(self) -> bool:
        """Return whether it contains only reasoning."""
        if isinstance(self.content, list):
            said = [part for part in self.content if part.says_something]
            thinks = all(part.thinking and not part.text for part in said)
            has_thoughts = bool(said)
        else:
            thinks, has_thoughts = not self.content, False
        return (
            thinks
            and bool(has_thoughts or self.reasoning_content or self.reasoning)
            and not (
                self.refusal or _is_given(self.tool_calls) or _is_given(self.function_call) or _is_given(self.audio)
            )
        )


def _is_given(value: msgspec.Raw) -> bool:
    return bytes(value).strip(b"[]{} \t\r\n") not in (b"", b"null")  # raw: "[ ]" is an empty list too


class ChunkChoice(msgspec.Struct, frozen=True, gc=False):
    """One choice in an upstream's chunk. `text` is the legacy completions field."""

    index: int = 0
    delta: ChunkDelta | None = None
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's: the stop string, or a token's id, that ended it


class ChatChunk(msgspec.Struct, frozen=True, gc=False):
    """One event of an upstream's stream: only the fields needed for accounting; the bytes are forwarded unchanged."""

    choices: list[ChunkChoice] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    error: msgspec.Raw = msgspec.Raw()
    service_tier: Any = None


class ReplyChoice(msgspec.Struct, frozen=True, gc=False):
    """One choice of a complete answer."""

    index: int = 0
    finish_reason: str | None = None


class ChatReply(msgspec.Struct, frozen=True, gc=False):
    """A complete answer: only the fields needed for accounting."""

    choices: list[ReplyChoice] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: Any = None


class PlainMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message with a role and content only: checksums of prompts cover its text alone."""

    role: str
    content: msgspec.Raw


class LoneText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A content part with text only."""

    type: Literal["text"]
    text: msgspec.Raw


def clip_effort(asked: ReasoningEffort | None, cap: ReasoningEffort | None) -> ReasoningEffort | None:
    """Return the effort to send to a model: the requested one, at most the cap; `None`: send none.

    Without a requested effort the cap itself is sent, because the model's default may be higher.
    """
    if cap is None or asked is None:
        return asked if cap is None else cap
    return min(asked, cap, key=EFFORTS.index)


def asked_effort(request: ChatRequest) -> ReasoningEffort | None:
    """Return the effort that a request asks for, in its own field or, with precedence, for the chat template.

    Return `None` if it asks for none, or for one that is not in `EFFORTS`.
    """
    stated = (request.chat_template_kwargs or {}).get("reasoning_effort", request.reasoning_effort)
    return next((effort for effort in EFFORTS if effort == stated), None)
