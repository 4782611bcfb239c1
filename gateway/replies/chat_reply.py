"""The answer to one chat request."""

from contracts.api.chat import ChatRequest
from gateway.apis.rendering import AnswerRenderer, ChatRenderer
from gateway.replies.reply import GeneratedReply
from gateway.replies.reply_facts import ReplyFacts


class ChatReply(GeneratedReply):
    """Receives the answer to one chat request."""

    def __init__(self, facts: ReplyFacts, request: ChatRequest) -> None:
        super().__init__(facts, request, None)
        self._id_text = facts.id_text
        self._created_unix = facts.created_unix
        self._model = request.model

    def _new_renderer(self) -> AnswerRenderer:
        return ChatRenderer(f"chatcmpl-{self._id_text.replace('-', '')}", self._created_unix, self._model)
