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


_NO_GAPS: Final[list[int]] = []
_UNKNOWN_USAGE: Final = UNKNOWN_USAGE  # under a name of this module: compiled code looks up another's in a table


class _TokenTimes:
    """The token times of an answer whose tokens pass one by one; complete answers have none."""

    __slots__ = ("arrivals", "arriving", "gaps", "last_at")

    def __init__(self) -> None:
        self.gaps: list[int] = []
        self.last_at: dict[int, int] = {}  # by choice
        self.arrivals: list[int] = []  # of tokens whose gaps are not yet computed
        self.arriving = 0  # the choice that they belong to


class Progress:
    """Timing and count of one attempt's tokens, recorded as they pass. Times are monotonic nanoseconds.

    Gaps are by the engine's clock if deltas contain its times, else by arrival here. The times of the first and the
    last token are always by arrival: that is what the client waits for.
    """

    __slots__ = (
        "_last_at_ns",
        "_times",
        "account",
        "_tokens",
        "first_at_ns",
        "on_first",
        "reasoning_tokens",
        "reported_method",
        "reported_usage",
        "service_tier",
    )

    def __init__(self) -> None:
        self.first_at_ns: int | None = None
        self._tokens = 0  # whose gaps are worked out
        self.reasoning_tokens = 0  # of these
        self.reported_usage: Usage = _UNKNOWN_USAGE  # by the target, before its end
        self.reported_method: CountMethod = "none"  # how that was counted
        self.service_tier: str | None = None  # that the target says it answers at
        self.account: Result | None = None  # of a call that raised
        self.on_first: Callable[[int], None] | None = None  # told once when the first token came
        self._last_at_ns: int | None = None
        self._times: _TokenTimes | None = None  # once a token has come

    def take(self, delta: Delta, now_ns: int) -> None:
        """Count a delta's tokens. Tokens that arrive in one piece without times have gaps of zero between them."""
        tokens, index, times = delta.tokens, delta.index, delta.times_ns
        if not tokens:
            return
        known = self._known_times()
        if known.arrivals:
            self._work_out()
        if self.first_at_ns is None:
            self.first_at_ns = now_ns
            if self.on_first is not None:
                self.on_first(now_ns)
        self._last_at_ns = now_ns
        self._tokens += tokens
        self.reasoning_tokens += delta.reasoning_tokens
        last = known.last_at.get(index)
        is_timed = len(times) == tokens
        at = times[0] if is_timed else now_ns
        if last is not None:
            known.gaps.append(gap_units(at - last))
        if tokens > 1:
            if is_timed:
                known.gaps.extend(gaps_between(times))
                at = times[-1]
            else:
                known.gaps.extend([0] * (tokens - 1))
        known.last_at[index] = at

    def _known_times(self) -> "_TokenTimes":
        times = self._times
        if times is None:
            times = self._times = _TokenTimes()
        return times

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
        times = self._known_times()
        times.arriving = index
        return times.arrivals

    def timer_of(self, index: int) -> Callable[[int, int], None]:
        """Return a callback that counts a further token of a choice, given when it was generated and when it
        arrived.
        """

        def count(made_ns: int, now_ns: int) -> None:
            if times.arrivals:
                self._work_out()
            self._tokens += 1
            self._last_at_ns = now_ns
            units = (made_ns - last_at[index] + _HALF_UNIT_NS) // GAP_UNIT_NS
            times.gaps.append(units if 0 <= units <= MAX_GAP_UNITS else gap_units(made_ns - last_at[index]))
            last_at[index] = made_ns

        times = self._known_times()
        last_at = times.last_at
        return count

    @property
    def tokens(self) -> int:
        """Return the number of tokens so far."""
        times = self._times
        return self._tokens if times is None else self._tokens + len(times.arrivals)

    @property
    def last_at_ns(self) -> int | None:
        """Return when the last token arrived."""
        times = self._times
        return times.arrivals[-1] if times is not None and times.arrivals else self._last_at_ns

    @property
    def gaps(self) -> list[int]:
        """Return the gaps between the tokens so far, in units of 10 us."""
        self._work_out()
        times = self._times
        return _NO_GAPS if times is None else times.gaps

    def _work_out(self) -> None:
        """Convert arrival times to gaps, for many tokens at once, because it would otherwise delay each piece of a
        stream.
        """
        times = self._times
        if times is not None and times.arrivals:
            arrivals = times.arrivals
            # A plain loop over whole numbers: compiled, it takes a fifth of one over pairs.
            gaps, before = times.gaps, times.last_at[times.arriving]
            for at in arrivals:
                gaps.append((at - before + _HALF_UNIT_NS) // GAP_UNIT_NS)
                before = at
            self._last_at_ns = times.last_at[times.arriving] = arrivals[-1]
            self._tokens += len(arrivals)
            arrivals.clear()

    @property
    def choices(self) -> set[int]:
        """Return the choices that have tokens."""
        return set() if self._times is None else set(self._times.last_at)

    def gaps_for(self, output_tokens: int | None) -> list[int]:
        """Return the gaps so that N tokens of each choice have N-1 gaps.

        If the target reports another count than the number of pieces, it put several tokens into a piece (zeros are
        added) or split a token over pieces (gaps are merged). The sum of the times stays the same.
        """
        gaps = self.gaps
        times = self._times
        if times is None or not times.last_at or output_tokens is None or not gaps and output_tokens <= 1:
            return gaps
        wanted = max(output_tokens - len(times.last_at), 0)
        excess = len(gaps) - wanted
        if excess < 0:
            return gaps + [0] * -excess if -excess <= _MAX_PADDING else gaps
        if excess == 0:
            return gaps
        if wanted == 0:
            return []
        return [*gaps[: wanted - 1], sum(gaps[wanted - 1 :])]
