"""The answer to one request of the Messages API."""

from functools import partial

from contracts.api.chat import TranslatedChat
from contracts.api.messages import Prompt
from contracts.metering.usage import Usage
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
        assert isinstance(request.origin, Prompt)
        self._new_message = partial(
            MessageRenderer,
            f"msg_{facts.request_id.hex}",
            request.model,
            shows_thinking=request.origin.shows_thinking,
        )
        self._message = self._new_message()
        super().__init__(facts, request, self._message, None if request.native is None else MessagePassage())
        self._headers += own_headers(self._headers, self._clock.wall_ns())

    def add_headers(self, headers: Headers) -> None:
        """Send these as well, those of limits also by the names that Anthropic's API has for them."""
        super().add_headers(headers + own_headers(headers, self._clock.wall_ns()))

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; what a failed one said and reported does not hold for another."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._renderer = self._message = self._new_message()

    def answered_at(self, tier: str) -> None:
        """Keep the service tier, which the message's usage names."""
        super().answered_at(tier)
        self._message.service_tier = tier

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Keep what the target knows of the usage, which a stream opens with where it comes first."""
        super().report(usage, count_method)
        self._message.usage_at_start = usage
