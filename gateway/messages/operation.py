"""POST /v1/messages: a chat asked for and answered in the words of Anthropic's API."""

from typing import Final

from contracts.chat import TranslatedChat
from contracts.requests import AnyRequest
from gateway.clock import Clock
from gateway.messages.errors import messages_errors
from gateway.messages.reply import MessagesReply
from gateway.messages.translation import read_messages_as_chat
from gateway.operations import CHAT, Operation
from gateway.reply import Reply, ReplyFacts


def _reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, TranslatedChat)
    return MessagesReply(facts, request)


MESSAGES: Final = Operation(
    "messages", CHAT.name, CHAT.path, ("/v1/messages",), read_messages_as_chat, _reply, messages_errors(Clock())
)
