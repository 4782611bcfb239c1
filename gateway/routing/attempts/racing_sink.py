"""The sink of one of several racing attempts (hedging): buffers output until it wins, drops output once it lost."""

from collections.abc import Callable
from typing import Literal

from backends.llm.base import Sink
from contracts.api.generation import Delta, Result, Vectors
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod
from gateway.replies.progress import Progress


class RacingSink:
    """The sink of one attempt. At its first token, `claim` returns whether it is the first of all attempts.

    Events before that token, such as usage, are buffered and passed on if the attempt wins.
    """

    def __init__(self, sink: Sink, progress: Progress, claim: Callable[[], bool]) -> None:
        self._sink = sink
        self._progress = progress
        self._claim = claim
        self._kept: list[Callable[[], None]] = []
        self.state: Literal["racing", "ahead", "lost"] = "racing"

    def finish(self) -> bool:
        """End an answer, which may be empty; return whether this attempt won."""
        return self._is_ahead()

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Accept an event. One without tokens does not decide the race."""
        if self.state == "racing" and not any([delta.tokens for delta in deltas]):
            self._kept.append(lambda: self._sink.event(data, deltas, is_usage_only=is_usage_only))
        elif self._is_ahead():
            self._sink.event(data, deltas, is_usage_only=is_usage_only)

    def delta(self, delta: Delta) -> None:
        """Accept a delta. One without tokens does not decide the race."""
        if self.state == "racing" and not delta.tokens:
            self._kept.append(lambda: self._sink.delta(delta))
        elif self._is_ahead():
            self._sink.delta(delta)

    def whole(self, body: bytes) -> None:
        """Accept a complete reply of this attempt."""
        if self._is_ahead():
            self._sink.whole(body)

    def vectors(self, vectors: Vectors) -> None:
        """Accept embeddings."""
        if self._is_ahead():
            self._sink.vectors(vectors)

    def scores(self, scores: list[float]) -> None:
        """Accept scores."""
        if self._is_ahead():
            self._sink.scores(scores)

    def native(self) -> None:
        """Accept that the answer is in the client's own API."""
        self._pass_or_keep(self._sink.native)

    def served(self, model: str, version: str) -> None:
        """Accept the name and version of the model that answers."""
        self._pass_or_keep(lambda: self._sink.served(model, version))

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Accept the producer's pause and resume functions; client backpressure applies to the winner only."""
        self._pass_or_keep(lambda: self._sink.attach_flow(pause, resume))

    def answered_at(self, tier: str) -> None:
        """Record the service tier in this attempt's progress: each attempt is charged at its own tier."""
        self._progress.service_tier = tier

    def media_type(self, name: str) -> None:
        """Accept the reply's media type."""
        self._pass_or_keep(lambda: self._sink.media_type(name))

    def piece(self, data: bytes) -> None:
        """Accept a piece."""
        if self._is_ahead():
            self._sink.piece(data)

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Record the usage in this attempt's progress, whether it wins or loses."""
        self._progress.reported_usage, self._progress.reported_method = usage, count_method

    def account(self, result: Result) -> None:
        """Record the result of a failed call in this attempt's progress, whether it wins or loses."""
        self._progress.account = result

    async def drained(self) -> None:
        """Wait until the client has read enough; return at once unless this attempt won."""
        if self.state == "ahead":
            await self._sink.drained()

    def _pass_or_keep(self, pass_on: Callable[[], None]) -> None:
        if self.state == "racing":
            self._kept.append(pass_on)
        elif self.state == "ahead":
            pass_on()

    def _is_ahead(self) -> bool:
        if self.state == "racing":
            self.state = "ahead" if self._claim() else "lost"
            kept, self._kept = self._kept, []
            if self.state == "ahead":
                for pass_on in kept:
                    pass_on()
        return self.state == "ahead"
