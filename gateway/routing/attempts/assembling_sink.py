"""Assembles a streamed answer for a caller that wants it complete: tokens are timed, nothing is sent before the end."""

from collections.abc import Callable

from backends.llm.assembled_answer import AssembledAnswer
from backends.llm.base import Sink
from backends.llm.http.sse import data_of
from contracts.api.generation import Delta, Result, Vectors
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod
from gateway.replies.progress import Progress
from gateway.request.clock import Clock


class AssemblingSink:
    """Receives a stream for a reply that is sent complete. Call `finish` after a successful answer."""

    def __init__(self, reply: Sink, progress: Progress, clock: Clock) -> None:
        self._reply = reply
        self._progress = progress
        self._clock = clock
        self._answer = AssembledAnswer()
        self._is_passed_on = False

    def finish(self) -> None:
        """Pass the complete answer to the reply. Raise UpstreamBroken if the target sent none."""
        if not self._is_passed_on:
            self._is_passed_on = True
            self._reply.whole(self._answer.body())

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Add an event to the answer."""
        now_ns = self._clock.monotonic_ns()
        for delta in deltas:
            self._progress.take(delta, now_ns)
        self._answer.take(data_of(data))

    def whole(self, body: bytes) -> None:
        """Pass on a reply that the target sent complete although a stream was requested."""
        self._is_passed_on = True
        self._reply.whole(body)

    def delta(self, delta: Delta) -> None:
        """Pass on a delta."""
        self._is_passed_on = True
        self._reply.delta(delta)

    def vectors(self, vectors: Vectors) -> None:
        """Pass on embeddings."""
        self._is_passed_on = True
        self._reply.vectors(vectors)

    def scores(self, scores: list[float]) -> None:
        """Pass on scores."""
        self._is_passed_on = True
        self._reply.scores(scores)

    def native(self) -> None:
        """Pass on that the answer is in the client's own API."""
        self._reply.native()

    def served(self, model: str, version: str) -> None:
        """Pass on which model answers."""
        self._reply.served(model, version)

    def answered_at(self, tier: str) -> None:
        """Pass on the service tier that answered."""
        self._reply.answered_at(tier)

    def media_type(self, name: str) -> None:
        """Pass on the reply's media type."""
        self._reply.media_type(name)

    def piece(self, data: bytes) -> None:
        """Pass on a piece of the reply's bytes."""
        self._is_passed_on = True
        self._reply.piece(data)

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Pass on the usage that the target has reported so far."""
        self._reply.report(usage, count_method)

    def account(self, result: Result) -> None:
        """Pass on the result of a call that raises."""
        self._reply.account(result)

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Do nothing: without streaming there is no backpressure from the client."""

    async def drained(self) -> None:
        """Return at once: the client gets nothing before the end."""
