"""How fast a replica works, learned from what it did: decayed sums, so that the last minute counts and old days do not.

Times are nanoseconds, monotonic.
"""

from typing import Final

_HALF_LIFE_NS: Final = 30e9
_ALIKE: Final = 1.25  # a pace that differs by less is the pool's: what is measured scatters, and must not choose
_PRIOR_TOKENS: Final = 4_096.0  # how much the pool's pace weighs against a replica's own
_MAX_TOKENS: Final = 40_000.0  # remembered: some prompts, so that a sudden change is seen within some
# A replica of which nothing is known: only how replicas compare matters, and they are equal then.
DEFAULT_PREFILL_NS: Final = 100_000.0  # a token


class PrefillPace:
    """The time a prompt's token takes to be computed. `shared` is the pace of the whole pool, `None` for its own."""

    __slots__ = ("_ns", "_shared", "_tokens", "_until_ns", "ns_per_token")

    def __init__(self, shared: "PrefillPace | None" = None) -> None:
        self._shared = shared
        self._tokens = 0.0
        self._ns = 0.0
        self._until_ns = 0
        self.ns_per_token = DEFAULT_PREFILL_NS

    def note(self, tokens: int, took_ns: int, now_ns: int) -> None:
        """Take what it did: so many tokens in so long."""
        self._fade(now_ns)
        self._tokens += tokens
        self._ns += took_ns
        if self._tokens > _MAX_TOKENS:
            self._ns *= _MAX_TOKENS / self._tokens
            self._tokens = _MAX_TOKENS
        if self._shared is not None:
            self._shared.note(tokens, took_ns, now_ns)
        self.refresh(now_ns)

    def refresh(self, now_ns: int) -> None:
        """Let what was long ago count for less: a replica that nobody asks is taken to be as the others are."""
        self._fade(now_ns)
        if self._shared is None:
            if self._tokens >= 1.0:
                self.ns_per_token = max(self._ns / self._tokens, 1.0)
            return
        prior = self._shared.ns_per_token
        own = max((self._ns + prior * _PRIOR_TOKENS) / (self._tokens + _PRIOR_TOKENS), 1.0)
        self.ns_per_token = own if own > prior * _ALIKE or own * _ALIKE < prior else prior

    def _fade(self, now_ns: int) -> None:
        past = now_ns - self._until_ns
        if past > 0:
            if self._until_ns:
                kept = 0.5 ** (past / _HALF_LIFE_NS)
                self._tokens *= kept
                self._ns *= kept
            self._until_ns = now_ns


class DecodePace:
    """The time between two tokens of an answer, and how it grows with the answers under way: a line through both."""

    __slots__ = ("_n", "_x", "_xx", "_xy", "_y", "base_ns", "slope_ns")

    _KEPT = 0.98  # of the past, at each answer

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self.base_ns = 0.0
        self.slope_ns = 0.0

    def note(self, running: int, gap_ns: float) -> None:
        """Take an answer's mean gap, and how many were under way beside it when it ended."""
        kept = self._KEPT
        self._n = self._n * kept + 1
        self._x = self._x * kept + running
        self._y = self._y * kept + gap_ns
        self._xx = self._xx * kept + running * running
        self._xy = self._xy * kept + running * gap_ns
        spread = self._n * self._xx - self._x * self._x
        slope = (self._n * self._xy - self._x * self._y) / spread if spread > 1e-6 * self._xx + 1e-9 else 0.0
        self.slope_ns = max(slope, 0.0)
        self.base_ns = max((self._y - self.slope_ns * self._x) / self._n, 0.0)

    def gap_ns(self, running: int) -> float:
        """Predict the gap with so many answers under way; 0 where nothing is known."""
        return self.base_ns + self.slope_ns * running
