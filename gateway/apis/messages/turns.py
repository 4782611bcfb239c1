"""Translates the messages of Anthropic's API to those of a chat, with all text in order, and tool results where chats
expect them.

Fields that only some servers understand (`cache_control`, `thinking_blocks`) are included, and removed again by
`without_marks`.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from contracts.api.messages import (
    AnyBlock,
    CacheControl,
    Contents,
    DocumentBlock,
    ImageBlock,
    ImageData,
    Message,
    PdfData,
    PlainText,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)

ChatMessage = dict[str, Any]  # one message of a chat's body
Part = dict[str, Any]  # one part of its content

MARKS: Final = ("cache_control", "thinking_blocks")
_PDF_NAME: Final = "document.pdf"


def chat_messages(system: str | Sequence[TextBlock] | None, messages: Sequence[Message]) -> list[ChatMessage]:
    """Return a conversation as chat messages. Adjacent messages of one role become one turn, as in Anthropic's API."""
    found = [] if not system else [_said("system", _parts(_blocks_of(system)))]
    for role, turn in itertools.groupby(messages, key=lambda message: message.role):
        blocks = [block for message in turn for block in _blocks_of(message.content)]
        if role == "assistant":
            found.append(_assistant_message(blocks))
        elif role == "user":
            found.extend(_user_messages(blocks))
        else:
            found.append(_said(role, _parts(blocks)))
    return found


def without_marks(message: ChatMessage) -> ChatMessage:
    """Return a message that every server accepts: without marks, and a single text as a string."""
    plain = {name: value for name, value in message.items() if name not in MARKS}
    content = plain.get("content")
    if isinstance(content, list):
        parts = [_unmarked(part) for part in content]
        plain["content"] = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    if "tool_calls" in plain:
        plain["tool_calls"] = [_unmarked(call) for call in plain["tool_calls"]]
    return plain


def has_marks(message: ChatMessage) -> bool:
    """Return whether a message has fields that only some servers understand."""
    content = message.get("content")
    inner = [*(content if isinstance(content, list) else ()), *message.get("tool_calls", ())]
    return any(name in one for one in (message, *inner) for name in MARKS)


def mark_last(messages: Sequence[ChatMessage], mark: CacheControl) -> None:
    """Mark the last block of a conversation that can be marked and is not marked yet."""
    for message in reversed(messages):
        content = message.get("content")
        if message["role"] == "tool":
            message.setdefault("cache_control", _mark(mark))
            return
        if isinstance(content, list) and content:
            content[-1].setdefault("cache_control", _mark(mark))
            return
        if message.get("tool_calls"):
            message["tool_calls"][-1].setdefault("cache_control", _mark(mark))
            return


def marked(thing: dict[str, Any], mark: CacheControl | None) -> dict[str, Any]:
    """Return a part or a tool with the cache mark of the block from which it was made."""
    if mark is not None:
        thing["cache_control"] = _mark(mark)
    return thing


def _unmarked(thing: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in thing.items() if name not in MARKS}


def _mark(mark: CacheControl) -> dict[str, str]:
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}


def _blocks_of(content: "str | Sequence[AnyBlock] | Sequence[TextBlock]") -> "Sequence[AnyBlock]":
    return [TextBlock(content)] if isinstance(content, str) else content


def _said(role: str, parts: list[Part]) -> ChatMessage:
    return {"role": role, "content": parts or ""}


def _assistant_message(blocks: "Iterable[AnyBlock]") -> ChatMessage:
    """Return an assistant's turn: its text, its tool calls, and its signed thoughts."""
    texts: list[Part] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[dict[str, str]] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": bytes(block.input).decode()}
            calls.append(marked({"id": block.id, "type": "function", "function": function}, block.cache_control))
        elif isinstance(block, ThinkingBlock):
            if block.signature:  # nobody can use thoughts that it has not signed itself
                thoughts.append({"type": "thinking", "thinking": block.thinking, "signature": block.signature})
        elif isinstance(block, RedactedThinkingBlock):
            thoughts.append({"type": "redacted_thinking", "data": block.data})
        else:
            texts.extend(_parts([block]))
    message = _said("assistant", texts)
    if calls:
        message["tool_calls"] = calls
        message["content"] = texts or None
    if thoughts:
        message["thinking_blocks"] = thoughts
    return message


def _user_messages(blocks: "Sequence[AnyBlock]") -> Iterator[ChatMessage]:
    """Yield a user's turn: first the tool results, as chats require them directly after the calls, then the rest.

    A chat's tool messages are text: other parts of a result are at the start of the rest.
    """
    rest: list[Part] = []
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            message, others = _tool_message(block)
            yield message
            if others:
                rest.append(_text(f"[images and documents of {block.tool_use_id}]"))
                rest.extend(others)
    results = bool(rest) or any(isinstance(block, ToolResultBlock) for block in blocks)
    rest.extend(_parts(block for block in blocks if not isinstance(block, ToolResultBlock)))
    if rest or not results:
        yield _said("user", rest)


def _tool_message(block: ToolResultBlock) -> tuple[ChatMessage, list[Part]]:
    """Return a result's text as a message, and its other parts. An error is marked as such."""
    parts = list(_parts(_blocks_of(block.content or [])))
    texts = [part for part in parts if part["type"] == "text"]
    others = [part for part in parts if part["type"] != "text"]
    if others:
        texts.append(_text("[images and documents follow]"))
    if block.is_error:
        first = texts[0] if texts else None
        texts[:1] = [{**first, "text": f"Error: {first['text']}"} if first else _text("Error")]
    message: ChatMessage = {"role": "tool", "tool_call_id": block.tool_use_id, "content": texts or ""}
    return marked(message, block.cache_control), others


def _parts(blocks: "Iterable[AnyBlock]") -> list[Part]:
    found: list[Part] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            found.append(marked(_text(block.text), block.cache_control))
        elif isinstance(block, ImageBlock):
            found.append(marked(_image(block), block.cache_control))
        elif isinstance(block, DocumentBlock):
            found.extend(_document(block))
        elif isinstance(block, ToolReferenceBlock):
            found.append(marked(_text(f"[the tool {block.tool_name} can be called now]"), block.cache_control))
    return found


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _image(block: ImageBlock) -> Part:
    source = block.source
    url = f"data:{source.media_type};base64,{source.data}" if isinstance(source, ImageData) else source.url
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: DocumentBlock) -> list[Part]:
    """Return a document, preceded by its title and context."""
    source = block.source
    about = [text for text in (block.title, block.context) if text]
    if isinstance(source, PlainText):
        parts = [_text("\n\n".join([*about, source.data]))]
    elif isinstance(source, PdfData):
        data = f"data:{source.media_type};base64,{source.data}"
        file = {"type": "file", "file": {"filename": block.title or _PDF_NAME, "file_data": data}}
        parts = [*([_text(block.context)] if block.context else ()), file]
    else:
        assert isinstance(source, Contents), "other sources are refused when the request is read"
        parts = [*([_text("\n\n".join(about))] if about else ()), *_parts(_blocks_of(source.content))]
    if parts:
        marked(parts[-1], block.cache_control)
    return parts
