"""The text of a request that shows its topic: the user's last message."""

from contracts.api.chat import ChatRequest, Message
from contracts.api.completion import CompletionRequest
from contracts.api.embedding import EmbeddingRequest
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest


def prompt_text(request: AnyRequest) -> str:
    """Return the user's last message; empty if there is none, as in a prompt of token ids or an image alone."""
    if isinstance(request, ChatRequest):
        return next((text for message in reversed(request.messages) if (text := _said(message))), "")
    try:
        if isinstance(request, CompletionRequest):
            return _first(request.prompts)
        if isinstance(request, EmbeddingRequest):
            return _first(request.inputs)
    except InvalidRequest:  # the request is refused for that later, with the error of its own field
        return ""
    return ""


def _said(message: Message) -> str:
    """Return the text of a user's message. Other messages are the application's or the model's."""
    if message.role != "user":
        return ""
    if isinstance(message.content, str):
        return message.content.strip()
    return "\n".join(part.text for part in message.content or () if part.text).strip()


def _first(entries: list[str | list[int]]) -> str:
    return next((entry.strip() for entry in entries if isinstance(entry, str)), "")
