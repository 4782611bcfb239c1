"""How far an answer may run on what is reserved for it: extended while there is room, ended clearly when there is none.

An answer that is ended so is cut after a whole token: the stream closes with `finish_reason` "length" and names the
rule, and what was made is charged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from contracts.errors import TollkeeperError
from gateway.progress import Progress

NEVER: Final = 1 << 62
_LEAST_MORE: Final = 64
_MOST_MORE: Final = 1024
_LAST_MORE: Final = (16, 4, 1)  # what is tried at the very end, where more cannot be had
_MOST_LEAD: Final = 32  # tokens before the end at which more is asked for


class Purse(Protocol):
    """Where more output comes from. `is_shared`: who asks may get what is not to be had at once."""

    is_shared: bool

    def extend_now(self, tokens: int) -> bool:
        """Take more at once; say whether it was had."""

    def extend(self, tokens: int) -> Awaitable[bool]:
        """Take more, asking the counters that are shared."""

    def why_not(self) -> TollkeeperError:
        """Name the rule that has no more to give."""


class Allowance:
    """One answer's room to grow. The reply looks at `next_at` for each piece and calls `reached` when it is passed."""

    __slots__ = (
        "_asking",
        "_end",
        "_has_ended",
        "_is_refused",
        "_most",
        "_progress",
        "_purse",
        "_start",
        "_thinking_end",
        "next_at",
        "reserved",
    )

    def __init__(
        self,
        reserved: int,
        most: int,
        purse: Purse | None,
        end: Callable[[TollkeeperError], None],
        thinking_end: tuple[int, TollkeeperError] | None = None,
    ) -> None:
        """`reserved` and `most` are output tokens over all choices; `thinking_end` bounds reasoning tokens."""
        self.reserved = reserved
        self._most = most
        self._purse = purse
        self._end = end
        self._thinking_end = thinking_end
        self._progress = Progress()
        self._start = 0  # tokens of earlier attempts that this one continues
        self._asking: asyncio.Task[None] | None = None
        self._has_ended = False
        self._is_refused = False  # when it last asked
        self.next_at = 0
        self._aim(0, 0)

    def begin_attempt(self, progress: Progress, tokens_before: int) -> None:
        """Watch this attempt: one that continues another's answer goes on in its room, one begun anew has all of it."""
        self._progress = progress
        self._start = tokens_before
        self._aim(0, 0)

    def reached(self) -> None:
        """Look at an answer that has come to `next_at`: ask for more, or end it."""
        self._look(self._progress.tokens, self._progress.reasoning_tokens)

    def hold(self, tokens: int, reasoning_tokens: int) -> None:
        """Look at an answer of which this much, all told, waits for a slow client: it was made and is to be paid."""
        made = self._progress.tokens + tokens
        if made >= self.next_at:
            self._look(made, self._progress.reasoning_tokens + reasoning_tokens)

    def _look(self, tokens: int, reasoning: int) -> None:
        if self._has_ended:
            return
        thinking_end = self._thinking_end
        if thinking_end is not None and reasoning >= thinking_end[0]:
            self._stop(thinking_end[1])
            return
        made = self._start + tokens
        if self._purse is not None and self.reserved < self._most and made >= self.reserved - self._lead():
            self._get_more(self._purse, made)
        self._aim(tokens, reasoning)

    def close(self) -> None:
        """Stop asking: the answer has ended."""
        self._has_ended = True
        self.next_at = NEVER
        if self._asking is not None:
            self._asking.cancel()

    def _get_more(self, purse: Purse, made: int) -> None:
        lacking = max(made - self.reserved, 0)  # what comes in large pieces may have gone past the end
        more = min(min(max(self.reserved // 4, _LEAST_MORE), _MOST_MORE) + lacking, self._most - self.reserved)
        if purse.extend_now(more):
            self.reserved += more
        elif made < self.reserved or (purse.is_shared and not self._is_refused):
            # What a target sends at once may go past the end before the answer comes: that is not yet a lack.
            if self._asking is None or self._asking.done():
                self._asking = asyncio.get_running_loop().create_task(self._ask(purse, more))
        else:
            self._get_last(purse, made)

    def _get_last(self, purse: Purse, made: int) -> None:
        while made >= self.reserved < self._most:
            left = self._most - self.reserved
            last = next((last for last in _LAST_MORE if last <= left and purse.extend_now(last)), 0)
            if not last:
                self._stop(purse.why_not())
                return
            self.reserved += last

    async def _ask(self, purse: Purse, more: int) -> None:
        self._is_refused = not await purse.extend(more)
        if self._has_ended:
            return
        if not self._is_refused:
            self.reserved += more
            self._aim(0, 0)
        elif self._start + self._progress.tokens > self.reserved:
            self._stop(purse.why_not())

    def _lead(self) -> int:
        return min(_MOST_LEAD, self.reserved // 4)

    def _aim(self, tokens: int, reasoning: int) -> None:
        """Set where to look next: at the end's approach, then at the end; and where thinking could be over its cap."""
        if self._has_ended:
            return
        look = NEVER
        if self._purse is not None and self.reserved < self._most:
            near, end = self.reserved - self._lead() - self._start, self.reserved - self._start
            look = near if tokens < near else end
        if self._thinking_end is not None:
            look = min(look, tokens + max(self._thinking_end[0] - reasoning, 1))
        self.next_at = look

    def _stop(self, why: TollkeeperError) -> None:
        self.close()
        self._end(why)
