"""A replica's speed, learned from its work with decayed sums: the last minute counts most.

Times are nanoseconds, monotonic.
"""

from typing import Final

_HALF_LIFE_NS: Final = 30e9
_FADED_NS: Final = 10_000_000  # what passed since is too little to count
_ALIKE: Final = 1.25  # a pace that differs by less is the pool's: what is measured scatters, and must not choose
_PRIOR_TOKENS: Final = 4_096.0  # how much the pool's pace weighs against a replica's own
_MAX_TOKENS: Final = 40_000.0  # remembered: some prompts, so that a sudden change is seen within some
_KEPT: Final = 0.98
_KEPT_OF_POOL: Final = 0.995  # the last two hundred answers
_PRIOR_ANSWERS: Final = 10.0  # how much the pool's gap weighs against a replica's own
_LEAST_ANSWERS: Final = 3.0
_SURE: Final = 9.0  # a growth counts from three times its standard error on
# A replica of which nothing is known: only how replicas compare matters, and they are equal then.
DEFAULT_PREFILL_NS: Final = 100_000.0  # a token


class PrefillPace:
    """The time a prompt's token takes to be computed. `shared` is the pace of the whole pool, `None` for its own."""

    __slots__ = ("_most_ns", "_most_tokens", "_ns", "_shared", "_tokens", "_until_ns", "ns_per_token")

    def __init__(self, shared: "PrefillPace | None" = None) -> None:
        self._shared = shared
        self._most_tokens = 0.0
        self._most_ns = 0.0
        self._tokens = 0.0
        self._ns = 0.0
        self._until_ns = 0
        self.ns_per_token = DEFAULT_PREFILL_NS

    def note(self, tokens: int, took_ns: int, now_ns: int) -> None:
        """Record what it did: the given number of tokens in so long."""
        self._fade(now_ns)
        self._tokens += tokens
        self._ns += took_ns
        if self._tokens > _MAX_TOKENS:
            self._ns *= _MAX_TOKENS / self._tokens
            self._tokens = _MAX_TOKENS
        if self._shared is not None:
            self._shared.note(tokens, took_ns, now_ns)
        self.refresh(now_ns)

    def note_most(self, tokens: int, took_ns: int) -> None:
        """Record how long a whole answer took: its prompt took no longer. Used while no prompt has been measured."""
        if self._shared is not None:
            self._shared.note_most(tokens, took_ns)
            return
        self._most_tokens += tokens
        self._most_ns += took_ns
        if self._most_tokens > _MAX_TOKENS:
            self._most_ns *= _MAX_TOKENS / self._most_tokens
            self._most_tokens = _MAX_TOKENS
        if self._tokens < 1.0:
            self.ns_per_token = max(min(self._most_ns / self._most_tokens, DEFAULT_PREFILL_NS), 1.0)

    @property
    def slowness(self) -> float:
        """Return its time per token relative to the pool's: 2 for a replica that takes twice as long."""
        return 1.0 if self._shared is None else self.ns_per_token / self._shared.ns_per_token

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
        if past > _FADED_NS or not self._until_ns:
            if self._until_ns:
                kept = 0.5 ** (past / _HALF_LIFE_NS)
                self._tokens *= kept
                self._ns *= kept
            self._until_ns = now_ns


class DecodePace:
    """The time between two tokens of an answer, and how it grows with the answers in progress: a line through both.

    A replica's line is the pool's (`shared`), scaled by how its own gaps compare: few replicas ever see enough answers
    at enough different loads for a line of their own, and one that happens to see none of the growth would be sent
    everything. A growth that is within the scatter counts as none.
    """

    __slots__ = ("_kept", "_n", "_shared", "_x", "_xx", "_xy", "_y", "_yy", "base_ns", "slope_ns")

    def __init__(self, shared: "DecodePace | None" = None) -> None:
        self._shared = shared
        self._kept = _KEPT if shared is not None else _KEPT_OF_POOL  # of the past, at each answer
        self._n = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        self.base_ns = 0.0
        self.slope_ns = 0.0

    def note(self, running: int, gap_ns: float) -> None:
        """Record an answer's mean gap, and how many were in progress beside it when it ended."""
        kept = self._kept
        self._n = self._n * kept + 1
        self._x = self._x * kept + running
        self._y = self._y * kept + gap_ns
        if self._shared is None:
            self._xx = self._xx * kept + running * running
            self._xy = self._xy * kept + running * gap_ns
            self._yy = self._yy * kept + gap_ns * gap_ns
            self.slope_ns = self._slope()
            self.base_ns = max((self._y - self.slope_ns * self._x) / self._n, 0.0)
            return
        self._shared.note(running, gap_ns)
        self.refresh()

    def refresh(self) -> None:
        """Follow the pool's line."""
        shared = self._shared
        if shared is None:
            return
        scale = 1.0
        usual = shared.gap_ns(self._x / self._n) if self._n else 0.0
        if usual > 0.0:
            own = (self._y + usual * _PRIOR_ANSWERS) / (usual * (self._n + _PRIOR_ANSWERS))
            scale = own if own > _ALIKE or own * _ALIKE < 1.0 else 1.0
        self.slope_ns, self.base_ns = shared.slope_ns * scale, shared.base_ns * scale

    def _slope(self) -> float:
        n = self._n
        spread = self._xx - self._x * self._x / n
        if n < _LEAST_ANSWERS or spread <= 1e-6 * self._xx + 1e-9:
            return 0.0
        slope = (self._xy - self._x * self._y / n) / spread
        scatter = max(self._yy - self._y * self._y / n - slope * slope * spread, 0.0) / n  # around the line
        return slope if slope > 0.0 and slope * slope * spread > _SURE * scatter else 0.0

    def gap_ns(self, running: float) -> float:
        """Predict the gap with the given number of answers in progress; 0 if nothing is known."""
        return self.base_ns + self.slope_ns * running
