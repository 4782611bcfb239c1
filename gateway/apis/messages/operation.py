"""POST /v1/messages: a chat in the format of Anthropic's API."""

from typing import Final

from contracts.api.chat import TranslatedChat
from contracts.api.requests import AnyRequest
from gateway.apis.messages.errors import LIMIT_NAMES, messages_errors
from gateway.apis.messages.reply import MessagesReply
from gateway.apis.messages.translation import read_messages_as_chat
from gateway.apis.messages.untranslated import read_untranslated_messages
from gateway.apis.native.reading import NativeReading
from gateway.apis.operations import CHAT, Operation
from gateway.replies.reply import Reply, ReplyFacts
from gateway.request.clock import Clock


def _reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, TranslatedChat)
    return MessagesReply(facts, request)


_NATIVE: Final = NativeReading(
    "messages",
    read_messages_as_chat,
    read_untranslated_messages,
    ((b"anthropic-version", "2023-06-01"), (b"anthropic-beta", "")),
)
MESSAGES: Final = Operation(
    "messages",
    CHAT.name,
    CHAT.path,
    ("/v1/messages",),
    read_messages_as_chat,
    _reply,
    messages_errors(Clock()),
    native=_NATIVE,
    has_plans=True,
    limit_names=LIMIT_NAMES,
)
