"""The answer to one request of the Messages API."""

from contracts.api.chat import TranslatedChat
from contracts.api.messages import Prompt
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import CountMethod
from gateway.apis.messages.errors import own_headers
from gateway.apis.messages.passage import MessagePassage
from gateway.apis.messages.rendering import MessageRenderer
from gateway.replies.progress import Progress
from gateway.replies.reply import ReplyFacts
from gateway.replies.translated_reply import TranslatedReply
from gateway.wire.exchange import Headers


class MessagesReply(TranslatedReply):
    """The sink of one message."""

    def __init__(self, facts: ReplyFacts, request: TranslatedChat) -> None:
        # A native answer that passes as it comes needs no renderer: it is made when it is asked for.
        super().__init__(facts, request, None, None if request.native is None else MessagePassage())
        self._chat = request
        self._id_text = facts.id_text
        self._usage_at_start = UNKNOWN_USAGE
        self._tier = ""
        self._headers += ((b"request-id", facts.id_text.encode()),)

    def add_headers(self, headers: Headers) -> None:
        """Send these as well, those of limits also by the names that Anthropic's API has for them."""
        super().add_headers(headers + own_headers(headers, self._clock.wall_ns()))

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; drop what a failed one produced and reported."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._known_renderer = None
            self._usage_at_start, self._tier = UNKNOWN_USAGE, ""

    def _new_renderer(self) -> MessageRenderer:
        origin = self._chat.origin
        assert isinstance(origin, Prompt)
        message_id = f"msg_{self._id_text.replace('-', '')}"
        made = MessageRenderer(message_id, self._chat.model, shows_thinking=origin.shows_thinking)
        made.usage_at_start, made.service_tier = self._usage_at_start, self._tier
        return made

    def answered_at(self, tier: str) -> None:
        """Keep the service tier, which the message's usage names."""
        super().answered_at(tier)
        self._tier = tier
        if isinstance(self._known_renderer, MessageRenderer):
            self._known_renderer.service_tier = tier

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Store the usage that the target reports, with which a stream starts if it arrives first."""
        super().report(usage, count_method)
        self._usage_at_start = usage
        if isinstance(self._known_renderer, MessageRenderer):
            self._known_renderer.usage_at_start = usage
