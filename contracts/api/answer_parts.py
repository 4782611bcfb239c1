"""Parts of a chat answer that the gateway inspects, and the format that the request asked for."""

from typing import Any, Final

import msgspec

from contracts.api.chat import DeltaPart


class AskedFormat(msgspec.Struct, frozen=True):
    """What a chat's `response_format` asks for."""

    type: str = ""


class CalledTool(msgspec.Struct, frozen=True, gc=False):
    """A tool called by an answer. Calls of the same tool with the same arguments have the same mark."""

    name: str
    mark: int  # 32 bits


class Findings(msgspec.Struct, frozen=True, gc=False):
    """What was found in an answer; `None`: unknown. `called` are the first tools that it calls."""

    tool_calls: int | None = None
    schema_failed: bool | None = None
    called: list[CalledTool] = []


NOTHING_FOUND: Final = Findings()


class CalledFunction(msgspec.Struct, frozen=True):
    """The function of a call, or a piece of it."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct, frozen=True):
    """A piece of a call, as it arrives in a stream."""

    index: int | None = None
    id: str | None = None
    function: CalledFunction | None = None


class WholeCall(msgspec.Struct, frozen=True):
    """A call in a complete answer."""

    function: CalledFunction | None = None


class SpokenPart(msgspec.Struct, frozen=True):
    """A part of a message's content, if the content is a list."""

    text: str | None = None


class SpokenMessage(msgspec.Struct, frozen=True):
    """A message: its text, and the tools that it calls."""

    content: str | list[SpokenPart] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class SpokenChoice(msgspec.Struct, frozen=True):
    """One of an answer's choices."""

    message: SpokenMessage | None = None
    text: str | None = None  # of a text completion


class SpokenAnswer(msgspec.Struct, frozen=True):
    """A complete answer, for inspecting its text and calls."""

    choices: list[SpokenChoice] | None = None


class WholeMessage(msgspec.Struct, frozen=True):
    """A message with everything that another API can express."""

    content: str | list[DeltaPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, object]] | None = None
    thinking_blocks: msgspec.Raw = msgspec.Raw()


class WholeChoice(msgspec.Struct, frozen=True):
    """One choice of an answer, to be translated into another API's format."""

    index: int = 0
    message: WholeMessage = WholeMessage()
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's: the stop string, or a token's id, that ended it


class WholeAnswer(msgspec.Struct, frozen=True):
    """A complete answer, to be translated into another API's format."""

    choices: list[WholeChoice]


class RawChoices(msgspec.Struct, frozen=True):
    """An answer whose choices stay JSON."""

    choices: list[msgspec.Raw]


class MessageCall(msgspec.Struct, frozen=True):
    """A block of an Anthropic message, with the arguments of a tool call."""

    type: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class MessageCalls(msgspec.Struct, frozen=True):
    """An Anthropic message, for the tools that it calls."""

    content: list[MessageCall]


class BlockEvent(msgspec.Struct, frozen=True):
    """An event of an Anthropic stream that starts or ends a block."""

    type: str = ""
    index: int = 0
