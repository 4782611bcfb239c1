"""The answer to one chat request."""

from contracts.api.chat import ChatRequest
from gateway.apis.rendering import ChatRenderer
from gateway.replies.reply import GeneratedReply
from gateway.replies.reply_facts import ReplyFacts


class ChatReply(GeneratedReply):
    """The sink of one chat request."""

    def __init__(self, facts: ReplyFacts, request: ChatRequest) -> None:
        renderer = ChatRenderer(f"chatcmpl-{facts.request_id.hex}", facts.created_unix, request.model)
        super().__init__(facts, request, renderer)
