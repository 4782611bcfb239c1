"""The answer to POST /v1/responses: rendered while a target produces it, or replayed from the cache; and stored."""

import logging
import re
from dataclasses import replace
from typing import Final

from contracts.api.chat import TranslatedChat
from contracts.api.generation import Delta
from contracts.errors import ContentFiltered, ObjectsUnavailable, TollkeeperError
from gateway.apis.rendering import ErrorShape
from gateway.apis.responses.asked import AskedResponse
from gateway.apis.responses.keeper import ResponseKeeper
from gateway.apis.responses.rendering import ResponseFacts, ResponseRenderer
from gateway.apis.responses.stream_tracker import ResponseStreamTracker
from gateway.apis.responses.upstream_answer import deltas_of, with_logprobs
from gateway.replies.progress import Progress
from gateway.replies.reply import ReplyFacts
from gateway.replies.translated_reply import TranslatedReply
from gateway.wire.exchange import Headers

_log = logging.getLogger(__name__)

_FIRST: Final = 0  # a response has one answer
# The id of a response object, by the request that made it. Within a text its quotes would be escaped.
_OWN_ID: Final = re.compile(rb'"id":"resp_([0-9a-f]{32})"')


class ResponseReply(TranslatedReply):
    """Renders and sends one response."""

    def __init__(self, facts: ReplyFacts, request: TranslatedChat, keeper: ResponseKeeper) -> None:
        assert isinstance(request.origin, AskedResponse)
        self._asked = request.origin
        self._keeper = keeper
        self._id = facts.request_id
        self._wants_logprobs = request.origin.request.wants_logprobs
        self._of = ResponseFacts(facts.request_id, facts.created_unix, facts.clock, request.origin, request)
        self._response = ResponseRenderer(self._of)
        self._is_replayed = self._is_unkept = False
        super().__init__(facts, request, self._response, None if request.native is None else ResponseStreamTracker())

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; drop output of a failed one that the client has not seen."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._renderer = self._response = ResponseRenderer(self._of)

    def answered_at(self, tier: str) -> None:
        """Store the service tier, which is part of the response."""
        super().answered_at(tier)
        self._response.service_tier = tier

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Send a native event on unchanged. Render the deltas of any other target's event."""
        if self._is_native:
            super().event(data, deltas, is_usage_only=is_usage_only)
            return
        for delta in with_logprobs(data, deltas) if self._wants_logprobs else deltas:
            self.delta(delta)

    def delta(self, delta: Delta) -> None:
        """Render a delta, or store it if the caller wants the complete answer."""
        if delta.index == _FIRST:
            super().delta(delta)

    def whole(self, body: bytes) -> None:
        """Convert a target's complete answer. Raises UpstreamBroken if it is not a chat answer."""
        if self._is_native:
            super().whole(body)
            return
        for delta in deltas_of(body):
            if delta.index == _FIRST:
                if self._facts is not None and delta.tool_calls:
                    self._facts.take(delta)
                self._gather(delta)

    def end_early(self, why: TollkeeperError) -> None:
        """End the answer here, as incomplete, with the reason."""
        is_open = not (self._choices and self._choices[_FIRST].finish_reason)
        if not self._is_streamed and (is_open or isinstance(why, ContentFiltered)):
            self._response.ended_by = why
        super().end_early(why)

    def copied(self) -> tuple[bytes, bytes, Headers] | None:
        """Return a copy of what was sent, for the cache; `None` if the response should have been stored and could not
        be.
        """
        return None if self._is_unkept else super().copied()

    def replay(self, begun: bytes, end: bytes, served: Headers) -> None:
        """Send a cached answer that `copied` returned for another response, under a new response id and new
        item ids.
        """
        self._is_replayed = True
        found = _OWN_ID.search(end)
        if found is not None:
            other, own = found.group(1), self._id.hex.encode()
            begun, end = begun.replace(other, own), end.replace(other, own)
        super().replay(begun, end, served)

    def errors(self, shape: ErrorShape) -> ErrorShape:
        """Return the error format for this answer: once the stream has started, an error is the event that ends it."""
        return replace(shape, event=self._response.failure)

    async def keep(self) -> None:
        """Store the response if requested. If that fails, the client is informed: the answer itself is valid."""
        if not self._asked.request.is_stored:
            return
        if self._passes or (self._is_native and not self._is_streamed):
            if not (self._body or b"").strip():
                return  # nothing of it came
        if self._is_replayed or self._is_native:
            self._response.take_end(self._body or b"", is_streamed=self._is_streamed)
        try:
            await self._keeper.keep(self._id, self._asked, self._response.response)
        except TollkeeperError as error:
            _log.warning("storing a response failed", extra={"request_id": str(self._id), "code": error.error_code})
            self._say_unkept(error)
        except Exception:  # whatever it is: a response that is not kept must not say that it is
            _log.exception(
                "storing a response failed because of an error in the gateway", extra={"request_id": str(self._id)}
            )
            self._say_unkept(ObjectsUnavailable("the gateway failed to store it; see its log"))

    def _say_unkept(self, why: TollkeeperError) -> None:
        self._is_unkept = True
        self._body = self._response.unkept(why, is_streamed=self._is_streamed)
