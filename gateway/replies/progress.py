"""Token times of one attempt: first token, gaps between tokens, counts."""

from collections.abc import Callable
from typing import Final

from contracts.api.generation import Delta, Result
from contracts.metering.gaps import GAP_UNIT_NS, MAX_GAP_UNITS, gap_units, gaps_between
from contracts.metering.usage import UNKNOWN_USAGE, Usage
from contracts.recording.records import CountMethod

# A target's word is taken for no more tokens than this beyond those that arrived: an absurd count in a broken
# usage report must not become as many zeros in memory.
_MAX_PADDING: Final = 1 << 18
_HALF_UNIT_NS: Final = GAP_UNIT_NS // 2


class Progress:
    """Timing and count of one attempt's tokens, recorded as they pass. Times are monotonic nanoseconds.

    Gaps are by the engine's clock if deltas contain its times, else by arrival here. The times of the first and the
    last token are always by arrival: that is what the client waits for.
    """

    __slots__ = (
        "_arrivals",
        "_arriving",
        "_gaps",
        "_last_at",
        "_last_at_ns",
        "account",
        "count_method",
        "first_at_ns",
        "on_first",
        "_tokens",
        "reasoning_tokens",
        "service_tier",
        "usage",
    )

    def __init__(self) -> None:
        self.first_at_ns: int | None = None
        self._tokens = 0  # whose gaps are worked out
        self.reasoning_tokens = 0  # of these
        self.usage: Usage = UNKNOWN_USAGE  # what the target reported before its end
        self.count_method: CountMethod = "none"
        self.service_tier: str | None = None  # that the target says it answers at
        self.account: Result | None = None  # of a call that raised
        self.on_first: Callable[[int], None] | None = None  # told once when the first token came
        self._last_at_ns: int | None = None
        self._gaps: list[int] = []
        self._last_at: dict[int, int] = {}  # by choice
        self._arrivals: list[int] = []  # of tokens whose gaps are not yet worked out
        self._arriving = 0  # the choice that they are of

    def take(self, delta: Delta, now_ns: int) -> None:
        """Count a delta's tokens. Tokens that arrive in one piece without times have gaps of zero between them."""
        tokens, index, times = delta.tokens, delta.index, delta.times_ns
        if not tokens:
            return
        if self._arrivals:
            self._work_out()
        if self.first_at_ns is None:
            self.first_at_ns = now_ns
            if self.on_first is not None:
                self.on_first(now_ns)
        self._last_at_ns = now_ns
        self._tokens += tokens
        self.reasoning_tokens += delta.reasoning_tokens
        last = self._last_at.get(index)
        is_timed = len(times) == tokens
        at = times[0] if is_timed else now_ns
        if last is not None:
            self._gaps.append(gap_units(at - last))
        if tokens > 1:
            if is_timed:
                self._gaps.extend(gaps_between(times))
                at = times[-1]
            else:
                self._gaps.extend([0] * (tokens - 1))
        self._last_at[index] = at

    def note_piece(self, now_ns: int) -> None:
        """Record the arrival time of a piece of an answer that has no tokens."""
        if self.first_at_ns is None:
            self.first_at_ns = now_ns
            if self.on_first is not None:
                self.on_first(now_ns)
        self._last_at_ns = now_ns

    def arrivals_of(self, index: int) -> list[int]:
        """Return a list to append the arrival time of each further token of a choice to. The choice already has a
        token.

        The list is valid until `take` gets a token of another choice.
        """
        self._work_out()
        self._arriving = index
        return self._arrivals

    def timer_of(self, index: int) -> Callable[[int, int], None]:
        """Return a callback that counts a further token of a choice, given when it was generated and when it
        arrived.
        """

        def count(made_ns: int, now_ns: int) -> None:
            if self._arrivals:
                self._work_out()
            self._tokens += 1
            self._last_at_ns = now_ns
            units = (made_ns - last_at[index] + _HALF_UNIT_NS) // GAP_UNIT_NS
            self._gaps.append(units if 0 <= units <= MAX_GAP_UNITS else gap_units(made_ns - last_at[index]))
            last_at[index] = made_ns

        last_at = self._last_at
        return count

    @property
    def tokens(self) -> int:
        """Return the number of tokens so far."""
        return self._tokens + len(self._arrivals)

    @property
    def last_at_ns(self) -> int | None:
        """Return when the last token arrived."""
        return self._arrivals[-1] if self._arrivals else self._last_at_ns

    @property
    def gaps(self) -> list[int]:
        """Return the gaps between the tokens so far, in units of 10 us."""
        self._work_out()
        return self._gaps

    def _work_out(self) -> None:
        """Convert arrival times to gaps, for many tokens at once, because it would otherwise delay each piece of a
        stream.
        """
        times = self._arrivals
        if times:
            # A plain loop over whole numbers: compiled, it takes a fifth of one over pairs.
            gaps, before = self._gaps, self._last_at[self._arriving]
            for at in times:
                gaps.append((at - before + _HALF_UNIT_NS) // GAP_UNIT_NS)
                before = at
            self._last_at_ns = self._last_at[self._arriving] = times[-1]
            self._tokens += len(times)
            times.clear()

    @property
    def choices(self) -> set[int]:
        """Return the choices that have tokens."""
        return set(self._last_at)

    def gaps_for(self, output_tokens: int | None) -> list[int]:
        """Return the gaps so that N tokens of each choice have N-1 gaps.

        If the target reports another count than the number of pieces, it put several tokens into a piece (zeros are
        added) or split a token over pieces (gaps are merged). The sum of the times stays the same.
        """
        gaps = self.gaps
        if output_tokens is None or not gaps and output_tokens <= 1:
            return gaps
        wanted = max(output_tokens - len(self._last_at), 0) if self._last_at else 0
        excess = len(gaps) - wanted
        if excess < 0:
            return gaps + [0] * -excess if self._last_at and -excess <= _MAX_PADDING else gaps
        if excess == 0:
            return gaps
        if wanted == 0:
            return []
        return [*gaps[: wanted - 1], sum(gaps[wanted - 1 :])]
