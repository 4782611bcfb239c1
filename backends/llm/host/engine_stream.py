"""One request in progress at an engine host: passes its deltas to the sink and waits for its end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from backends.llm.base import DeltaSink
from contracts.api.generation import Delta
from contracts.engine.wire import Delta as WireDelta
from contracts.engine.wire import Finished
from contracts.metering.usage import UNKNOWN_USAGE, Usage

T = TypeVar("T")

# Returns, for a choice, the function that takes the text of each further token and the time of its generation.
_TextRelay = Callable[[int], Callable[[str, int], None] | None]

# Not reported as ends of a choice: the error that follows decides what the client sees.
_NO_ENDS_OF_A_CHOICE: Final = ("abort", "error")


class EngineStream:
    """Receives a request's frames. If the client is slow, deltas are buffered as text, a tenth of the size of their
    events.

    The host's socket is never paused, because it carries other requests too.
    """

    __slots__ = (
        "_choices",
        "_done",
        "_held",
        "_held_reasoning",
        "_held_tokens",
        "_on_held",
        "_relay",
        "_sink",
        "_text_relay",
        "cached_tokens",
        "ended_choices",
        "model",
        "prompt_tokens",
        "reasoning_tokens",
        "token_ids",
    )

    def __init__(
        self,
        sink: DeltaSink,
        prompt_tokens: int,
        choices: int,
        given_ids: tuple[int, ...] = (),
        on_held: Callable[[int, int], None] | None = None,
    ) -> None:
        self._sink = sink
        # Called after the first delta, for the function that takes plain text.
        self._text_relay: _TextRelay | None = getattr(sink, "text_relay", None)
        self._relay: Callable[[str, int], None] | None = None
        self._choices = choices
        self._on_held = on_held
        self._held_tokens = self._held_reasoning = 0
        self._done: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._held: list[Delta] | None = None
        self.model = ""  # set by EngineHost.submit
        self.prompt_tokens = prompt_tokens
        self.cached_tokens: int | None = None
        self.token_ids = list(given_ids)  # of all choices; with one choice, the answer so far
        self.ended_choices = 0
        self.reasoning_tokens = 0

    # called by the connection

    def on_delta(self, message: WireDelta) -> None:
        """Pass a delta to the sink, or buffer it."""
        token_ids, reason = message.token_ids, message.finish_reason
        self.token_ids += token_ids
        if self._relay is not None and self._held is None and len(token_ids) == 1 and _is_plain(message):
            self._relay(message.content, message.times_ns[0])
            return
        if message.cached_tokens is not None:
            self.cached_tokens = message.cached_tokens
            self._sink.report(self._usage_in(self.cached_tokens), "exact")
        if reason is not None:
            self.ended_choices += 1
            reason = None if reason in _NO_ENDS_OF_A_CHOICE else reason
        tokens = len(token_ids)
        thought = tokens if message.reasoning and not message.content and not message.tool_calls else 0
        self.reasoning_tokens += thought
        delta = Delta(
            tokens,
            message.content,
            message.reasoning,
            message.index,
            reason,
            message.times_ns,
            message.tool_calls,
            message.logprobs,
            thought,
            stop=message.stop,
        )
        if self._held is not None:
            self._hold(self._held, delta)
            return
        self._sink.delta(delta)
        if self._text_relay is not None:
            self._relay, self._text_relay = self._text_relay(message.index), None

    def on_finished(self, message: Finished) -> None:
        """Process the host's final message."""
        self.resume()
        end = self._awaited()
        if not end.done():
            end.set_result(message)

    def fail(self, error: Exception) -> None:
        """End without a final message: the host is gone or sent invalid data, or the sink raised.

        An error of the sink is no TollkeeperError, and not the host's fault.
        """
        self.resume()
        end = self._awaited()
        if not end.done():
            end.set_exception(error)

    # called by the sink

    def pause(self) -> None:
        """Buffer deltas from now on."""
        if self._held is None and not self._awaited().done():
            self._held = []

    def resume(self) -> None:
        """Pass buffered deltas to the sink, joined to one per choice, and stop buffering."""
        held, self._held = self._held, None
        if held:
            self._held_tokens = self._held_reasoning = 0
            if self._on_held is not None:
                self._on_held(0, 0)
            try:
                for delta in _joined(held):
                    self._sink.delta(delta)
            except Exception as error:  # the caller serves other requests too and must not fail
                self.fail(error)

    # called by the target

    async def finished(self) -> Finished:
        """Wait for the host's final message. Raises the error that was passed to `fail`."""
        return await self._awaited()

    async def finished_within(self, seconds: float) -> Finished | None:
        """Wait for the host's final message on an aborted request; `None` if it does not arrive within `seconds`.

        The caller has been cancelled already and must raise CancelledError afterwards. Further cancellations do not end
        the wait. Otherwise the engine time of a cancelled hedge would not be recorded if its client then disconnects.
        """
        return await result_within(self._awaited, seconds)

    @property
    def is_complete(self) -> bool:
        """Return whether every choice has ended, with or without the host's final message."""
        return self.ended_choices >= self._choices

    def usage_so_far(self, given: int = 0) -> Usage:
        """Return the usage counted so far, without the host's final message; unknown before the first delta."""
        if self.cached_tokens is None:
            return UNKNOWN_USAGE
        thought = self.reasoning_tokens
        made = Usage(output_text=len(self.token_ids) - given - thought, output_reasoning=thought or None)
        return self._usage_in(self.cached_tokens).plus(made)

    def _awaited(self) -> "asyncio.Future[Finished]":
        """Return the future of the end. A cancelled waiter cancels the future, so a new one replaces it then."""
        if self._done.cancelled():
            self._done = asyncio.get_running_loop().create_future()
        return self._done

    def _usage_in(self, cached_tokens: int) -> Usage:
        cached = min(cached_tokens, self.prompt_tokens)
        return Usage(input_text=self.prompt_tokens - cached, cache_read_text=cached)

    def _hold(self, held: list[Delta], delta: Delta) -> None:
        held.append(delta)
        self._held_tokens += delta.tokens
        self._held_reasoning += delta.reasoning_tokens
        if self._on_held is not None:
            self._on_held(self._held_tokens, self._held_reasoning)


async def result_within(awaited: "Callable[[], asyncio.Future[T]]", seconds: float) -> T | None:
    """Return a future's result; `None` if it fails or is not done in time. Cancellation does not end the wait."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    future = awaited()
    while not future.done() and (left := deadline - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait((future,), timeout=left)
        future = awaited()
    if not future.done() or future.cancelled() or future.exception() is not None:
        return None
    return future.result()


def _is_plain(message: WireDelta) -> bool:
    """Return whether a delta has one token and nothing but its text and time."""
    says_more = message.reasoning or message.tool_calls or message.logprobs
    ends_or_begins = message.finish_reason is not None or message.cached_tokens is not None
    return not (says_more or ends_or_begins) and len(message.times_ns) == 1


def _joined(held: list[Delta]) -> list[Delta]:
    by_choice: dict[int, list[Delta]] = {}
    for delta in held:
        by_choice.setdefault(delta.index, []).append(delta)
    return [
        Delta(
            sum(delta.tokens for delta in deltas),
            "".join(delta.text for delta in deltas),
            "".join(delta.reasoning for delta in deltas),
            index,
            next((delta.finish_reason for delta in reversed(deltas) if delta.finish_reason), None),
            [time for delta in deltas for time in delta.times_ns],
            _joined_calls([delta.tool_calls for delta in deltas if delta.tool_calls]),
            [logprob for delta in deltas for logprob in delta.logprobs],
            sum(delta.reasoning_tokens for delta in deltas),
            stop=next((delta.stop for delta in deltas if delta.stop), ""),
        )
        for index, deltas in by_choice.items()
    ]


def _joined_calls(pieces: list[bytes]) -> bytes:
    return b"[" + b",".join(piece.strip()[1:-1] for piece in pieces) + b"]" if pieces else b""
