"""Types of OpenAI's Responses API: what an application sends, and the items that go into and come out of a model.

Names, limits and defaults follow OpenAI's API reference (October 2026). Fields that are not supported here are typed
anyway, so that they can be refused by name.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contracts.api.chat import PositiveInt, Probability, ReasoningEffort, Temperature

MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_KEY: Final = 64  # characters, like the next
MAX_METADATA_VALUE: Final = 512
MAX_ITEMS: Final = 4096  # in one request's input
MAX_PARTS: Final = 10_000  # in all the items together: each costs the gateway about ten microseconds
MAX_TOOLS: Final = 128
MAX_FUNCTION_NAME: Final = 64  # characters
NULL: Final = msgspec.Raw(b"null")

Role = Literal["user", "assistant", "system", "developer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Verbosity = Literal["low", "medium", "high"]
Truncation = Literal["auto", "disabled"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]

LOGPROBS: Final = "message.output_text.logprobs"
# `include` names that ask for what every answer has, or that have a substitute: reasoning is sent as text.
INCLUDED_ALWAYS: Final = ("reasoning.encrypted_content", "message.input_image.image_url")
HOSTED_INCLUDES: Final = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)

# Fields of other APIs that are sent here by mistake, and their equivalent; OpenAI refuses every unknown field.
FIELD_ELSEWHERE: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
    "logprobs": f"include: [{LOGPROBS!r}]",
}


class InputText(msgspec.Struct, frozen=True, tag="input_text", gc=False):
    """Text from the application."""

    text: str


class InputImage(msgspec.Struct, frozen=True, tag="input_image", gc=False):
    """An image, by URL or as a data URL."""

    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class InputFile(msgspec.Struct, frozen=True, tag="input_file", gc=False):
    """A document, as a data URL."""

    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None


class AudioData(msgspec.Struct, frozen=True, gc=False):
    """Audio in base64."""

    data: str
    format: str


class InputAudio(msgspec.Struct, frozen=True, tag="input_audio", gc=False):
    """Audio from the application."""

    input_audio: AudioData


class OutputText(msgspec.Struct, frozen=True, tag="output_text", gc=False):
    """Text from a model, returned to it."""

    text: str


class OutputRefusal(msgspec.Struct, frozen=True, tag="refusal", gc=False):
    """A model's refusal, returned to it."""

    refusal: str


ContentPart = InputText | InputImage | InputFile | InputAudio | OutputText | OutputRefusal
PART_TYPES: Final = ("input_text", "input_image", "input_file", "input_audio", "output_text", "refusal")


class MessageItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message, in the short or the full form."""

    role: Role
    content: str | list[ContentPart]
    id: str | None = None
    status: ItemStatus | None = None


class FunctionCallItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A model's function call, returned to it. `arguments` is JSON text."""

    call_id: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    arguments: str
    id: str | None = None
    status: ItemStatus | None = None
    namespace: str | None = None

    @property
    def chat_name(self) -> str:
        """Return the function's name in a chat."""
        return chat_name(self.namespace, self.name)


class FunctionCallOutputItem(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a function call."""

    call_id: Annotated[str, Meta(min_length=1)]
    output: str | list[ContentPart]
    id: str | None = None
    status: ItemStatus | None = None


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A model's reasoning, returned to it. It is stored with the rest and not sent to a model again."""

    id: str | None = None


class ItemReference(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An item of a stored response, by its id."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]


InputItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem | ItemReference
ITEM_TYPES: Final[dict[str, type[InputItem]]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionCallOutputItem,
    "reasoning": ReasoningItem,
    "item_reference": ItemReference,
}


FunctionName = Annotated[str, Meta(min_length=1, max_length=MAX_FUNCTION_NAME, pattern=r"^[a-zA-Z0-9_-]+$")]


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call. `parameters` is a JSON schema."""

    type: Literal["function"] = "function"
    name: FunctionName
    parameters: msgspec.Raw = NULL  # not decoded: 5 MB of it would take half a second
    strict: bool | None = None
    description: str | None = None


class NamespaceTool(msgspec.Struct, frozen=True, kw_only=True):
    """A group of functions, whose calls name the group. `tools` are read one by one."""

    type: Literal["namespace"] = "namespace"
    name: FunctionName
    description: str | None = None
    tools: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=MAX_TOOLS)]


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a request, and its namespace, if any."""

    function: FunctionTool
    namespace: str | None = None

    @property
    def chat_name(self) -> str:
        """Return the function's name in a chat."""
        return chat_name(self.namespace, self.function.name)


def chat_name(namespace: str | None, name: str) -> str:
    """Return the name of a function in a chat, which has no namespaces."""
    return name if namespace is None else f"{namespace}__{name}"


class TextFormat(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer's text must be. `schema`, `name` and the other fields belong to "json_schema"."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: msgspec.Raw = NULL
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements for the answer's text."""

    format: TextFormat | None = None
    verbosity: Verbosity | None = None


class ReasoningConfig(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much a model should reason. Not summarised: the reasoning itself is returned, if the model shows it."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(msgspec.Struct, frozen=True, gc=False):
    """Options of a stream. Obfuscation, which pads events to equal length, is not supported."""

    include_obfuscation: bool | None = None


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/responses. `input` and `tools` are read one by one, so that an error can name the entry."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    input: str | Annotated[list[msgspec.Raw], Meta(max_length=MAX_ITEMS)] | None = None
    instructions: str | None = None
    previous_response_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: PositiveInt | None = None
    max_tool_calls: PositiveInt | None = None  # of tools that run at the API's side, of which there are none here
    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[str] | None = None
    tools: Annotated[list[msgspec.Raw], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: msgspec.Raw | UnsetType = UNSET
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    truncation: Truncation | None = None
    metadata: dict[str, str] | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=1024)] | None = None
    service_tier: ServiceTier | None = None
    # Hints for a prompt cache, which change no answer.
    prompt_cache_options: msgspec.Raw | UnsetType = UNSET
    prompt_cache_retention: msgspec.Raw | UnsetType = UNSET
    # Not supported.
    background: bool | None = None
    conversation: msgspec.Raw | UnsetType = UNSET
    prompt: msgspec.Raw | UnsetType = UNSET
    context_management: msgspec.Raw | UnsetType = UNSET
    moderation: msgspec.Raw | UnsetType = UNSET
    access_programs: msgspec.Raw | UnsetType = UNSET
    image: msgspec.Raw | UnsetType = UNSET

    @property
    def is_stored(self) -> bool:
        """Return whether the answer should be stored, which is OpenAI's default."""
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        """Return whether the text should have log probabilities."""
        return LOGPROBS in (self.include or ())
