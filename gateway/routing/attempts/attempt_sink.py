"""A sink between a target and the reply, for callers that must see the first output of an answer, or its pauses."""

from collections.abc import Callable
from typing import Final

from backends.llm.base import Sink
from backends.llm.http.streamed_call import can_stream, may_be_streamed
from contracts.api.generation import Delta, Result, Vectors
from contracts.api.requests import AnyRequest
from contracts.metering.usage import Usage
from contracts.recording.records import CountMethod
from contracts.serving.configuration import TargetSpec
from gateway.routing.health.target_health import TargetHealth

_TOKEN_BY_TOKEN: Final = frozenset(("engine", "scripted"))  # also if the caller wants the complete answer


def shows_tokens(spec: TargetSpec, request: AnyRequest) -> bool:
    """Return whether the gateway sees a target's first token before the end of its answer."""
    return request.is_streamed or spec.kind in _TOKEN_BY_TOKEN


def is_called_by_stream(health: TargetHealth, spec: TargetSpec, request: AnyRequest, body: bytes) -> bool:
    """Return whether a complete answer is requested as a stream, because the pool times tokens."""
    return (
        health.pool.policy.times_tokens
        and not shows_tokens(spec, request)
        and not health.refuses_streams
        and can_stream(spec)
        and may_be_streamed(request, body)
    )


class AttemptSink:
    """Passes everything to `sink`. `on_output` is called once, before the first output."""

    def __init__(self, sink: Sink, on_output: Callable[[], None]) -> None:
        self._sink = sink
        self._on_output: Callable[[], None] | None = on_output
        self.is_paused = False  # by a client that reads slowly
        self.pauses = 0  # started so far

    @property
    def has_output(self) -> bool:
        """Return whether there was any output."""
        return self._on_output is None

    def event(self, data: bytes, deltas: tuple[Delta, ...], *, is_usage_only: bool) -> None:
        """Pass on an event."""
        if any([delta.tokens for delta in deltas]):
            self._note_output()
        self._sink.event(data, deltas, is_usage_only=is_usage_only)

    def delta(self, delta: Delta) -> None:
        """Pass on a delta."""
        if delta.tokens:
            self._note_output()
        self._sink.delta(delta)

    def whole(self, body: bytes) -> None:
        """Pass on a complete reply."""
        self._note_output()
        self._sink.whole(body)

    def vectors(self, vectors: Vectors) -> None:
        """Pass on embeddings."""
        self._note_output()
        self._sink.vectors(vectors)

    def scores(self, scores: list[float]) -> None:
        """Pass on scores."""
        self._note_output()
        self._sink.scores(scores)

    def native(self) -> None:
        """Pass on that the answer is in the client's own API."""
        self._sink.native()

    def served(self, model: str, version: str) -> None:
        """Pass on which model answers."""
        self._sink.served(model, version)

    def answered_at(self, tier: str) -> None:
        """Pass on the service tier."""
        self._sink.answered_at(tier)

    def media_type(self, name: str) -> None:
        """Pass on the reply's media type."""
        self._sink.media_type(name)

    def piece(self, data: bytes) -> None:
        """Pass on a piece of the reply's bytes."""
        self._note_output()
        self._sink.piece(data)

    def report(self, usage: Usage, count_method: CountMethod) -> None:
        """Pass on the usage that is known so far."""
        self._sink.report(usage, count_method)

    def account(self, result: Result) -> None:
        """Pass on the usage of a call that ends with an error."""
        self._sink.account(result)

    def attach_flow(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Pass on the producer's pause and resume functions, and remember whether it is paused."""

        def held() -> None:
            self.is_paused = True
            self.pauses += 1
            pause()

        def let_go() -> None:
            self.is_paused = False
            resume()

        self._sink.attach_flow(held, let_go)

    async def drained(self) -> None:
        """Wait until the client has read enough."""
        await self._sink.drained()

    def _note_output(self) -> None:
        told, self._on_output = self._on_output, None
        if told is not None:
            told()
