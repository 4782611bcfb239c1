"""When tokens arrived: first token, gaps between tokens, counts. One per attempt."""

from typing import Final

import msgspec

from contracts.generation import Delta, Result
from contracts.records import CountMethod, gap_units
from contracts.usage import UNKNOWN_USAGE, Usage

# A target's word is taken for no more tokens than this beyond those that arrived: an absurd count in a broken
# usage report must not become as many zeros in memory.
_MAX_PADDING: Final = 1 << 18


class Progress(msgspec.Struct):
    """Timing and count of one attempt's tokens, kept as they pass. Times are monotonic nanoseconds.

    Gaps are by the engine's clock where deltas carry its times, else by arrival here. The first and the last token's
    times are by arrival always: that is what the client waits for.
    """

    first_at_ns: int | None = None
    last_at_ns: int | None = None
    gaps: list[int] = []  # 10 us units
    tokens: int = 0
    reasoning_tokens: int = 0  # of these
    usage: Usage = UNKNOWN_USAGE  # what the target reported before its end
    count_method: CountMethod = "none"
    account: Result | None = None  # of a call that raised
    _last_at: dict[int, int] = {}  # by choice

    def take(self, delta: Delta, now_ns: int) -> None:
        """Count a delta's tokens. Tokens that come in one piece without times have gaps of zero between them."""
        tokens, index, times = delta.tokens, delta.index, delta.times_ns
        if not tokens:
            return
        if self.first_at_ns is None:
            self.first_at_ns = now_ns
        self.last_at_ns = now_ns
        self.tokens += tokens
        self.reasoning_tokens += delta.reasoning_tokens
        last = self._last_at.get(index)
        is_timed = len(times) == tokens
        at = times[0] if is_timed else now_ns
        if last is not None:
            self.gaps.append(gap_units(at - last))
        if tokens > 1:
            if is_timed:
                self.gaps.extend([gap_units(times[place] - times[place - 1]) for place in range(1, tokens)])
                at = times[-1]
            else:
                self.gaps.extend([0] * (tokens - 1))
        self._last_at[index] = at

    @property
    def choices(self) -> set[int]:
        """Give the choices that have had tokens."""
        return set(self._last_at)

    def gaps_for(self, output_tokens: int | None) -> list[int]:
        """Give the gaps so that N tokens of each choice have N-1.

        A target that reports another count than the pieces we saw put several tokens in a piece (zeros are added)
        or split one over pieces (gaps are joined, the sum of time staying the same).
        """
        if output_tokens is None or not self.gaps and output_tokens <= 1:
            return self.gaps
        wanted = max(output_tokens - len(self._last_at), 0) if self._last_at else 0
        excess = len(self.gaps) - wanted
        if excess < 0:
            return self.gaps + [0] * -excess if self._last_at and -excess <= _MAX_PADDING else self.gaps
        if excess == 0:
            return self.gaps
        if wanted == 0:
            return []
        return [*self.gaps[: wanted - 1], sum(self.gaps[wanted - 1 :])]
