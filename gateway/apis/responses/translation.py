"""Translates a request of the Responses API to a chat: the history, the instructions and the items become messages.

Function calls and the assistant's text beside them are one chat message, because the outputs must follow it directly.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from contracts.api.chat import ChatRequest, TranslatedChat
from contracts.api.responses import (
    NULL,
    ContentPart,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputAudio,
    InputFile,
    InputImage,
    InputItem,
    InputText,
    MessageItem,
    OfferedTool,
    OutputRefusal,
    ResponseRequest,
    TextFormat,
)
from contracts.errors import InvalidRequest
from gateway.apis.responses.asked import AskedResponse

ChatMessage = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode
_chats: Final = msgspec.json.Decoder(ChatRequest)


def unresolved_chat(asked: AskedResponse) -> TranslatedChat:
    """Return a chat with only the caller's data, to be completed by `chat_of` once everything is looked up."""
    request = asked.request
    return TranslatedChat(model=request.model, messages=[], stream=request.stream, chat_body=b"", origin=asked)


def chat_of(asked: AskedResponse) -> TranslatedChat:
    """Return the chat for a target. Raises InvalidRequest if the items are not a valid conversation."""
    request = asked.request
    items = [*asked.history, *(one.item for one in asked.items)]
    fields = _fields_of(asked, chat_messages(request.instructions, items))
    body = _encode(fields)
    chat = _chats.decode(body)
    given = {name: getattr(chat, name) for name in ChatRequest.__struct_fields__}
    given["user"] = request.user or request.safety_identifier
    return TranslatedChat(**given, chat_body=body, origin=asked)


def check_items(asked: AskedResponse) -> None:
    """Check that every tool output has its call, and that the input contains a message. Raises InvalidRequest."""
    called = {item.call_id for item in asked.history if isinstance(item, FunctionCallItem)}
    for place, one in enumerate(asked.items):
        item = one.item
        if isinstance(item, FunctionCallItem):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutputItem) and item.call_id not in called:
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {item.call_id[:100]}.",
                param=f"input[{place}].call_id",
            )
    items = [*asked.history, *(one.item for one in asked.items)]
    if not any(isinstance(item, MessageItem | FunctionCallItem | FunctionCallOutputItem) for item in items):
        raise InvalidRequest("input has no message; add one", param="input")


def chat_messages(instructions: str | None, items: Iterable[InputItem]) -> list[ChatMessage]:
    """Return a chat's messages. Reasoning is left out, as models' chat templates leave out earlier reasoning."""
    conversation = _Conversation()
    if instructions is not None:
        conversation.messages.append({"role": "system", "content": instructions})
    for item in items:
        if isinstance(item, MessageItem):
            conversation.say(item)
        elif isinstance(item, FunctionCallItem):
            conversation.call(item)
        elif isinstance(item, FunctionCallOutputItem):
            conversation.output(item)
    conversation.show_held()
    return conversation.messages


class _Conversation:
    """Builds a chat's messages. Parts of tool outputs other than text follow in a user message of their own."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self._is_answering = False  # the last message is an assistant's, of the items
        self._held: list[ChatMessage] = []  # parts, for a message after the last of the outputs

    def say(self, item: MessageItem) -> None:
        self.show_held()
        content = _content(item.content)
        if self._is_answering and item.role == "assistant" and "tool_calls" in self.messages[-1]:
            self.messages[-1]["content"] = _joined(self.messages[-1]["content"], content)
        else:
            self.messages.append({"role": item.role, "content": content})
        self._is_answering = item.role == "assistant"

    def call(self, item: FunctionCallItem) -> None:
        self.show_held()
        if not self._is_answering:
            self.messages.append({"role": "assistant", "content": None})
        self.messages[-1].setdefault("tool_calls", []).append(_call(item))
        self._is_answering = True

    def output(self, item: FunctionCallOutputItem) -> None:
        parts = [] if isinstance(item.output, str) else item.output
        others = [_part(part) for part in parts if not isinstance(part, InputText)]
        texts = item.output if isinstance(item.output, str) else [part for part in parts if isinstance(part, InputText)]
        self.messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _content(texts) or ""})
        if others:
            self._held += [{"type": "text", "text": f"[images and documents of {item.call_id}]"}, *others]
        self._is_answering = False

    def show_held(self) -> None:
        """Add the non-text parts of outputs as a user's message: the preceding outputs must stay together."""
        if self._held:
            self.messages.append({"role": "user", "content": self._held})
            self._held = []


def _fields_of(asked: AskedResponse, messages: list[ChatMessage]) -> dict[str, Any]:
    """Return the fields of the chat's body: what the application stated, and no default of ours."""
    request = asked.request
    text, reasoning = request.text, request.reasoning
    offered = asked.tools or None
    stated = {
        "stream": True if request.stream else None,
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "logprobs": True if request.wants_logprobs else None,
        "top_logprobs": request.top_logprobs if request.wants_logprobs else None,
        "tools": [_tool(tool) for tool in asked.tools] or None,
        "tool_choice": asked.tool_choice if offered else None,
        "parallel_tool_calls": request.parallel_tool_calls if offered else None,
        "response_format": _response_format(text.format) if text and text.format else None,
        "verbosity": text.verbosity if text else None,
        "reasoning_effort": reasoning.effort if reasoning else None,
        **_pass_on(request),
    }
    given = {name: value for name, value in stated.items() if value is not None}
    return {"model": request.model, "messages": messages, **given}


def _pass_on(request: ResponseRequest) -> dict[str, Any]:
    """Return the fields that a chat has under the same name. Metadata stays here: it belongs to the response."""
    names = ("user", "safety_identifier", "prompt_cache_key", "service_tier")
    return {name: getattr(request, name) for name in names}


def _content(content: str | Sequence[ContentPart]) -> str | list[ChatMessage]:
    """Return a message's content; a single text as a string, which every server accepts."""
    if isinstance(content, str):
        return content
    parts = [_part(part) for part in content]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def _part(part: ContentPart) -> ChatMessage:
    if isinstance(part, InputImage):
        detail = {} if part.detail is None else {"detail": part.detail}
        return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}
    if isinstance(part, InputFile):
        name = {} if part.filename is None else {"filename": part.filename}
        return {"type": "file", "file": {"file_data": part.file_data, **name}}
    if isinstance(part, InputAudio):
        return {"type": "input_audio", "input_audio": part.input_audio}
    if isinstance(part, OutputRefusal):
        return {"type": "refusal", "refusal": part.refusal}
    return {"type": "text", "text": part.text}


def _joined(first: str | list[ChatMessage] | None, second: str | list[ChatMessage]) -> str | list[ChatMessage]:
    """Join the texts before and after a call."""
    if first is None:
        return second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: str | list[ChatMessage]) -> list[ChatMessage]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _call(item: FunctionCallItem) -> ChatMessage:
    return {"id": item.call_id, "type": "function", "function": {"name": item.chat_name, "arguments": item.arguments}}


def _tool(tool: OfferedTool) -> ChatMessage:
    stated = _stated(tool.function, ("description", "parameters", "strict"))
    return {"type": "function", "function": {"name": tool.chat_name, **stated}}


def _response_format(form: TextFormat) -> dict[str, Any] | None:
    if form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": _stated(form, ("name", "description", "schema", "strict"))}


def _stated(thing: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the fields that have a value."""
    fields = {name: getattr(thing, name) for name in names}
    return {name: value for name, value in fields.items() if value is not None and value != NULL}
