"""The allowance of an answer: the caller's maximum and the reservation, extended while capacity is free.

No token is delivered beyond it. Such an answer is cut after a whole token: the stream closes with `finish_reason`
"length" and names the rule, and its usage is charged. A target that honours `max_tokens` ends its answer by itself, so
the caller's limit cuts only at a token beyond it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import structs

from contracts.api.generation import Delta
from contracts.errors import TollkeeperError
from contracts.metering.least_tokens import first_words, least_tokens
from gateway.replies.progress import Progress

NEVER: Final = 1 << 62
WAIT: Final = -1  # the shared counters have been asked, and have not answered yet
_LEAST_MORE: Final = 64
_MOST_MORE: Final = 1024
_LAST_MORE: Final = (16, 4, 1)  # what is tried at the very end, where more cannot be had
_MOST_LEAD: Final = 32  # tokens before the end at which more is asked for


class OutputSource(Protocol):
    """The source from which an allowance gets more output. `is_shared`: other gateways may have capacity to ask for."""

    is_shared: bool

    def extend_now(self, tokens: int) -> bool:
        """Reserve more without waiting; return whether that succeeded."""

    def extend(self, tokens: int) -> Awaitable[bool]:
        """Reserve more, asking the shared counters; return whether that succeeded."""

    def why_not(self) -> TollkeeperError:
        """Return an error that names the exhausted limit or budget."""


class Allowance:
    """The output that one answer may still produce.

    A reply whose token count has reached `next_at` holds each further piece and passes it here before delivering it.
    """

    __slots__ = (
        "_asking",
        "_at_most",
        "_by_choice",
        "_choices",
        "_end",
        "_has_ended",
        "_is_refused",
        "_most",
        "_on_answer",
        "_progress",
        "_purse",
        "_start",
        "_thinking_end",
        "_undelivered",
        "_undelivered_thoughts",
        "is_over",
        "next_at",
        "reserved",
    )

    def __init__(
        self,
        reserved: int,
        most: int,
        purse: OutputSource | None,
        end: Callable[[TollkeeperError], None],
        thinking_end: tuple[int, TollkeeperError] | None = None,
        choices: int = 1,
        at_most: Callable[[], TollkeeperError] | None = None,
    ) -> None:
        """`reserved` and `most` are output tokens over all choices; `thinking_end` bounds reasoning tokens.

        `at_most` names what set `most`, once a target has gone beyond it; without it `most` ends nothing.
        """
        self.reserved = reserved
        self._most = most
        self._purse = purse
        self._end = end
        self._thinking_end = thinking_end
        self._choices = choices
        self._at_most = at_most
        self._by_choice: dict[int, int] = {}  # tokens delivered, where there are several
        self._progress = Progress()
        self._start = 0  # tokens of earlier attempts that this one continues
        self._asking: asyncio.Task[None] | None = None
        self._on_answer: Callable[[], None] | None = None
        self._has_ended = False
        self._is_refused = False  # when it last asked
        self._undelivered = 0  # tokens that have arrived, and are counted
        self._undelivered_thoughts = 0  # of these
        self.is_over = False  # it has ended the answer
        self.next_at = 0
        self._aim(0, 0)

    @property
    def delivered(self) -> int:
        """Return how many tokens the client may have seen."""
        return self._start + self._progress.tokens - self._undelivered

    @property
    def withheld(self) -> int:
        """Return how many tokens have arrived and were not delivered."""
        return self._undelivered

    def begin_attempt(self, progress: Progress, tokens_before: int) -> None:
        """Watch this attempt. If it continues another attempt's answer it has the rest of the allowance, else all of
        it.
        """
        self._progress = progress
        self._start = tokens_before
        self._undelivered = self._undelivered_thoughts = 0
        if not tokens_before:
            self._by_choice.clear()
        self._aim(0, 0)

    def on_answer(self, call: Callable[[], None]) -> None:
        """Register a callback for the time when the shared counters have answered."""
        self._on_answer = call

    def defer(self, tokens: int, reasoning: int) -> None:
        """Record that these tokens, which `Progress` has counted, are not delivered yet."""
        self._undelivered += tokens
        self._undelivered_thoughts += reasoning

    def offer(self, tokens: int, reasoning: int = 0, index: int = 0, *, is_complete: bool = False) -> int:
        """Return how many tokens of a deferred piece may be delivered now. Fewer than the piece has: the answer ends
        there.

        WAIT: that is not known yet; offer the piece again after the shared counters have answered. `is_complete`: this
        is the last piece of the answer.
        """
        if self.is_over:
            return 0
        progress, purse = self._progress, self._purse
        before = self._start + progress.tokens - self._undelivered
        passing, is_capped = self._within_cap(tokens, reasoning)
        most = self._left(before, index)
        passing, is_beyond = (most, True) if passing > most else (passing, False)
        made = before + passing
        if purse is not None and self.reserved < self._most and not self._has_ended:
            if made > self.reserved or (made >= self.reserved - self._lead() and not is_complete):
                self._get_more(purse, made)
            if made > self.reserved:
                if not self.is_over and self._asking is not None:
                    self.next_at = 0  # all that follows waits behind it
                    return WAIT
                passing = max(self.reserved - before, 0)
        if is_beyond or is_capped:
            self._end_beyond(is_beyond=is_beyond)
        self._undelivered -= passing
        self._undelivered_thoughts -= min(reasoning, passing)
        if self._choices > 1:
            self._by_choice[index] = self._by_choice.get(index, 0) + passing
        self._aim(progress.tokens, progress.reasoning_tokens)
        return passing

    def _end_beyond(self, *, is_beyond: bool) -> None:
        """End the answer because it exceeded its limit of output tokens or of reasoning tokens."""
        if self.is_over:
            return
        if is_beyond and self._at_most is not None:
            self._stop(self._at_most())
        elif self._thinking_end is not None:
            self._stop(self._thinking_end[1])

    def hold(self, tokens: int, reasoning_tokens: int) -> None:
        """Check an answer of which this much waits for a slow client: it was generated and has to be paid for."""
        if self._has_ended:
            return
        thinking_end = self._thinking_end
        if thinking_end is not None and self._progress.reasoning_tokens + reasoning_tokens > thinking_end[0]:
            self._stop(thinking_end[1])
            return
        made = self._start + self._progress.tokens + tokens
        if self._purse is not None and self.reserved < self._most and made >= self.reserved - self._lead():
            self._get_more(self._purse, made)

    def close(self) -> None:
        """Stop reserving more: the answer has ended."""
        self._has_ended = True
        self._on_answer = None  # it leads to the reply, which leads here
        self.next_at = 0 if self.is_over else NEVER
        if self._asking is not None:
            self._asking.cancel()

    async def answered(self) -> None:
        """Wait until the shared counters have answered all questions of this allowance."""
        if self._asking is not None:
            await asyncio.wait((self._asking,))

    def _within_cap(self, tokens: int, reasoning: int) -> tuple[int, bool]:
        """Return how many of a piece's tokens the cap on reasoning lets through, and whether it cuts the piece."""
        thinking_end = self._thinking_end
        if thinking_end is None or not reasoning:
            return tokens, False
        left = thinking_end[0] - (self._progress.reasoning_tokens - self._undelivered_thoughts)
        return (tokens, False) if reasoning <= left else (max(left, 0), True)

    def _left(self, before: int, index: int) -> int:
        """Return how many more tokens a choice may have; a very large number if nothing bounds it."""
        if self._at_most is None:
            return NEVER
        if self._choices > 1:
            return max(self._most // self._choices - self._by_choice.get(index, 0), 0)
        return max(self._most - before, 0)

    def _get_more(self, purse: OutputSource, made: int) -> None:
        lacking = max(made - self.reserved, 0)  # what comes in large pieces may have gone past the end
        more = min(min(max(self.reserved // 4, _LEAST_MORE), _MOST_MORE) + lacking, self._most - self.reserved)
        if purse.extend_now(more):
            self.reserved += more
        elif made < self.reserved or (purse.is_shared and not self._is_refused):
            # What a target sends at once may go past the end before the answer comes: that is not yet a lack.
            if self._asking is None:
                self._asking = asyncio.get_running_loop().create_task(self._ask(purse, more))
        else:
            self._get_last(purse, made)

    def _get_last(self, purse: OutputSource, made: int) -> None:
        while made >= self.reserved < self._most:
            left = self._most - self.reserved
            last = next((last for last in _LAST_MORE if last <= left and purse.extend_now(last)), 0)
            if not last:
                self._stop(purse.why_not())
                return
            self.reserved += last

    async def _ask(self, purse: OutputSource, more: int) -> None:
        try:
            self._is_refused = not await purse.extend(more)
        finally:
            self._asking = None
        if self._has_ended:
            return
        if not self._is_refused:
            self.reserved += more
        self._aim(0, 0)
        if self._on_answer is not None:
            self._on_answer()

    def _lead(self) -> int:
        return min(_MOST_LEAD, self.reserved // 4)

    def _aim(self, tokens: int, reasoning: int) -> None:
        """Set the token count of the next check: near the end of the allowance, then at its end, and where reasoning
        could exceed its cap.
        """
        if self.is_over:
            self.next_at = 0
            return
        if self._has_ended:
            return
        look = NEVER
        if self._at_most is not None:
            look = 0 if self._choices > 1 else self._most - self._start + 1
        if self._purse is not None and self.reserved < self._most:
            near, end = self.reserved - self._lead() - self._start, self.reserved - self._start
            look = min(look, near if tokens < near else end)
        if self._thinking_end is not None:
            look = min(look, tokens + max(self._thinking_end[0] - reasoning, 0) + 1)
        self.next_at = look

    def _stop(self, why: TollkeeperError) -> None:
        self.is_over = True
        self.close()
        self._end(why)


def part_of(delta: Delta, tokens: int) -> Delta | None:
    """Return the start of a piece that has at most this many of its tokens; `None` if it cannot be divided.

    Plain text is divided between words: a piece counted by its words loses those beyond, one with more tokens than
    words loses more. Text timed by our own engines, tool calls and signed reasoning are not divided.
    """
    is_text = bool(delta.text) != bool(delta.reasoning)
    if not is_text or tokens <= 0 or delta.times_ns:
        return None
    if delta.tool_calls or delta.logprobs or delta.thinking_blocks or delta.refusal:
        return None
    said = delta.text or delta.reasoning
    words = least_tokens(said)
    kept = first_words(said, words * tokens // delta.tokens)
    if not kept or kept == said:
        return None
    thoughts = min(delta.reasoning_tokens, tokens)
    if delta.text:
        return structs.replace(delta, tokens=tokens, text=kept, reasoning_tokens=thoughts, finish_reason=None, stop="")
    return structs.replace(delta, tokens=tokens, reasoning=kept, reasoning_tokens=thoughts, finish_reason=None, stop="")
