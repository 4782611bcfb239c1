"""The answer to one chat request."""

from functools import partial

from contracts.api.chat import ChatRequest
from gateway.apis.rendering import AnswerRenderer, ChatRenderer
from gateway.replies.reply import GeneratedReply
from gateway.replies.reply_facts import ReplyFacts


class ChatReply(GeneratedReply):
    """The sink of one chat request."""

    def __init__(self, facts: ReplyFacts, request: ChatRequest) -> None:
        super().__init__(facts, request, partial(_renderer_of, facts.id_text, facts.created_unix, request.model))


def _renderer_of(id_text: str, created_unix: int, model: str) -> AnswerRenderer:
    return ChatRenderer(f"chatcmpl-{id_text.replace('-', '')}", created_unix, model)
