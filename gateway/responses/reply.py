"""The answer to POST /v1/responses while a target produces it, and its keeping."""

import logging
from dataclasses import replace
from typing import Final

from contracts.chat import TranslatedChat
from contracts.errors import ObjectsUnavailable, TollkeeperError
from contracts.generation import Delta
from gateway.progress import Progress
from gateway.rendering import ErrorShape
from gateway.reply import ReplyFacts
from gateway.responses.asked import AskedResponse
from gateway.responses.keeper import ResponseKeeper
from gateway.responses.rendering import ResponseFacts, ResponseRenderer
from gateway.responses.upstream_answer import deltas_of, with_logprobs
from gateway.translated_reply import TranslatedReply

_log = logging.getLogger(__name__)

_FIRST: Final = 0  # a response has one answer


class ResponseReply(TranslatedReply):
    """The sink of one response."""

    def __init__(self, facts: ReplyFacts, request: TranslatedChat, keeper: ResponseKeeper) -> None:
        assert isinstance(request.origin, AskedResponse)
        self._asked = request.origin
        self._keeper = keeper
        self._id = facts.request_id
        self._wants_logprobs = request.origin.request.wants_logprobs
        self._of = ResponseFacts(facts.request_id, facts.created_unix, facts.clock, request.origin, request)
        self._response = ResponseRenderer(self._of)
        super().__init__(facts, request, self._response)

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; what a failed one said, and nobody saw, is not said again."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._renderer = self._response = ResponseRenderer(self._of)

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Render what an upstream's event carries."""
        for delta in with_logprobs(data, deltas) if self._wants_logprobs else deltas:
            self.delta(delta)

    def delta(self, delta: Delta) -> None:
        """Render a piece, or keep it where the caller wants the answer whole."""
        if delta.index == _FIRST:
            super().delta(delta)

    def whole(self, body: bytes) -> None:
        """Take an upstream's whole answer apart. Raises UpstreamBroken where it is no chat's."""
        for delta in deltas_of(body):
            if delta.index == _FIRST:
                if self._facts is not None and delta.tool_calls:
                    self._facts.take(delta)
                self._collect(delta)

    def end_early(self, why: TollkeeperError) -> None:
        """End a good answer here, incomplete, with the name of what ended it."""
        if not self._is_streamed and not (self._choices and self._choices[_FIRST].finish_reason):
            self._response.ended_by = why
        super().end_early(why)

    def errors(self, shape: ErrorShape) -> ErrorShape:
        """Give how this answer puts an error: once the stream has begun, as the event that ends it."""
        return replace(shape, event=self._response.failure)

    async def keep(self) -> None:
        """Keep the response where that is asked for. Where it fails, the client is told so: the answer is good."""
        if not self._asked.request.is_stored:
            return
        try:
            await self._keeper.keep(self._id, self._asked, self._response.response)
        except TollkeeperError as error:
            _log.warning("a response could not be kept", extra={"request_id": str(self._id), "code": error.error_code})
            self._body = self._response.unkept(error, is_streamed=self._is_streamed)
        except Exception:  # whatever it is: a response that is not kept must not say that it is
            _log.exception(
                "a response could not be kept by a fault of the gateway", extra={"request_id": str(self._id)}
            )
            failure = ObjectsUnavailable("the gateway failed to keep it; its log says why")
            self._body = self._response.unkept(failure, is_streamed=self._is_streamed)
