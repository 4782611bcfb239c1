"""Chat nouns in OpenAI's shape: what an application sends, and the parts of an answer.

Only what the gateway decides by is typed; fields it does not know stay in the body, which is forwarded as it
came. Limits on values are those of OpenAI's API reference (October 2026) where it states them.
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
EFFORTS: Final[tuple[ReasoningEffort, ...]] = get_args(ReasoningEffort)  # the least first

PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
ChoiceCount = Annotated[int, Meta(ge=1, le=128)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Extensions of vLLM's server, which its users' code sends as further fields of the body (its documentation, 0.25).
NotNegative = Annotated[int, Meta(ge=0, le=2**31 - 1)]
RepetitionPenalty = Annotated[float, Meta(ge=0.01, le=100)]  # smaller ones overflow a logit in float32


class ContentPart(msgspec.Struct, frozen=True, gc=False):
    """One part of a message's content. `type` decides which field is set; blobs stay unparsed."""

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
    """What a stream carries besides content."""

    include_usage: bool | None = None


class StructuredOutputs(msgspec.Struct, frozen=True):
    """What the output must match: one of these. An extension of vLLM's."""

    json: dict[str, Any] | str | None = None  # a schema, or its text
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ModelRequest(msgspec.Struct, frozen=True, gc=False):
    """What every request says: which model it is for."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]

    @property
    def asked_tier(self) -> str:
        """Return the service tier asked for, as price cards name it; empty: none, or the standard one."""
        return ""


class InputRequest(ModelRequest, frozen=True, kw_only=True):
    """What requests have in common for which nothing is generated: the answer comes whole, and costs its input."""

    user: Annotated[str, Meta(max_length=256)] | None = None

    @property
    def is_streamed(self) -> bool:
        """Return False: the answer comes whole."""
        return False

    @property
    def output_limit(self) -> int | None:
        """Return no limit: nothing is generated."""
        return None

    @property
    def choice_count(self) -> int:
        """Return one answer."""
        return 1

    @property
    def temperature(self) -> float | None:
        """Return none: nothing is sampled."""
        return None


class GenerationRequest(ModelRequest, frozen=True, kw_only=True):
    """What requests for generated text have in common, whichever way the prompt is put."""

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
        """Return the service tier asked for, as price cards name it; "auto" where the provider is to choose."""
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
        """Return what the caller says of the most tokens one choice may have, in whichever fields."""
        return () if self.max_tokens is None else (self.max_tokens,)

    @property
    def output_limit(self) -> int | None:
        """Return the most tokens one choice may have."""
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
        """Return what the caller says of the most tokens one choice may have: OpenAI's field has two names."""
        return tuple(limit for limit in (self.max_tokens, self.max_completion_tokens) if limit is not None)

    @property
    def output_limit(self) -> int | None:
        """Return the most tokens one choice may have; `max_completion_tokens` is OpenAI's newer name."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


class TranslatedChat(ChatRequest, frozen=True, kw_only=True):
    """A chat that was asked for in the words of another API.

    Targets and limits see a chat; `chat_body` is what they are given in place of the application's bytes. `origin` is
    the request as it was asked, for the answer to be put into the same API's words. `marked_body` is the chat with what
    only some servers understand (`cache_control`, `thinking_blocks`); empty if there is nothing of the kind. `native`
    is for targets that speak the API themselves, if there may be one; with a `refusal` in it there is no translation,
    and `chat_body` is the body as it came. `dropped` are fields that the translation leaves out; with `unless_dropped`
    it is only for targets whose settings let them be dropped, and others refuse it with that. `chat_fields` are the
    top-level fields of `chat_body`, where that has been taken apart.
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
    """A part of a delta's content where it is a list, as Mistral's reasoning models stream it."""

    type: str = ""
    text: str | None = None
    thinking: "str | list[DeltaPart] | None" = None

    @property
    def says_something(self) -> bool:
        """Return whether it carries output. A part of a type we do not know does: it was sent for something."""
        return bool(self.text or self.thinking) or self.type not in ("text", "thinking", "")

    @property
    def thought(self) -> str:
        """Return the reasoning in it."""
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
    function_call: msgspec.Raw = msgspec.Raw()  # before tool calls, and still sent by older servers
    audio: msgspec.Raw = msgspec.Raw()
    thinking_blocks: msgspec.Raw = msgspec.Raw()  # Anthropic's, as LiteLLM puts them beside the reasoning

    @property
    def thought(self) -> str:
        """Return the reasoning it adds, wherever it stands."""
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
        """Return whether the delta carries generated tokens, rather than a role or an end."""
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
        """Return whether what it carries is reasoning and nothing else."""
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
    stop_reason: Any = None  # vLLM's: the stop string that ended it, or a token's id


class ChatChunk(msgspec.Struct, frozen=True, gc=False):
    """One event of an upstream's stream: only what accounting needs; the bytes go through as they came."""

    choices: list[ChunkChoice] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    error: msgspec.Raw = msgspec.Raw()
    service_tier: Any = None


class ReplyChoice(msgspec.Struct, frozen=True, gc=False):
    """One choice of a whole answer."""

    index: int = 0
    finish_reason: str | None = None


class ChatReply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer: only what accounting needs."""

    choices: list[ReplyChoice] | None = None
    usage: OpenAIUsage | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: Any = None


class PlainMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message that has a role and content and nothing else: checksums of prompts are of its text alone."""

    role: str
    content: msgspec.Raw


class LoneText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A content part that is text and nothing else."""

    type: Literal["text"]
    text: msgspec.Raw


def clip_effort(asked: ReasoningEffort | None, cap: ReasoningEffort | None) -> ReasoningEffort | None:
    """Return the effort a model is to be told: what was asked, at most the cap; `None`: tell it nothing.

    If nothing was asked the cap itself is told, as the model's own default may lie above it.
    """
    if cap is None or asked is None:
        return asked if cap is None else cap
    return min(asked, cap, key=EFFORTS.index)


def asked_effort(request: ChatRequest) -> ReasoningEffort | None:
    """Return the effort that a request asks for, in its own field or, which counts for more, for the chat template.

    `None` if it asks for none, or for one that has no place in the order.
    """
    stated = (request.chat_template_kwargs or {}).get("reasoning_effort", request.reasoning_effort)
    return next((effort for effort in EFFORTS if effort == stated), None)
