"""A replica's speed, estimated from its requests with exponentially decayed sums; the last minute counts most.

Times are monotonic nanoseconds.
"""

from typing import Final

_HALF_LIFE_NS: Final = 30e9
_FADED_NS: Final = 10_000_000  # shorter times cause no decay
_ALIKE: Final = 1.25  # a pace within this ratio of the pool's counts as equal, so that noise does not decide
_PRIOR_TOKENS: Final = 4_096.0  # weight of the pool's pace relative to a replica's own
_MAX_TOKENS: Final = 40_000.0  # weight of the past: a few prompts, so that sudden changes show after as many
_KEPT: Final = 0.98
_KEPT_OF_POOL: Final = 0.995  # about the last two hundred answers
_PRIOR_ANSWERS: Final = 10.0  # weight of the pool's inter-token time relative to a replica's own
_LEAST_ANSWERS: Final = 3.0
_SURE: Final = 9.0  # a slope counts from three times its standard error on
# For replicas without measurements; only the comparison matters, and they are all equal then.
DEFAULT_PREFILL_NS: Final = 100_000.0  # per token


class PrefillPace:
    """The prefill time per token. `shared` is the pace of the whole pool; `None` for that pace itself."""

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
        """Record a prefill of `tokens` tokens in `took_ns`."""
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
        """Record the time of a whole answer as an upper bound of its prefill. Used until a prefill has been
        measured.
        """
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
        """Decay old measurements, so that an unused replica's pace approaches the pool's."""
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
    """The inter-token time as a linear function of the number of answers in progress.

    A replica's line is the pool's (`shared`), scaled by how its own inter-token times compare: few replicas see enough
    answers at enough different loads for a line of their own, and one that measured no slope by chance would get all
    requests. A slope within the noise counts as zero.
    """

    __slots__ = ("_kept", "_n", "_shared", "_x", "_xx", "_xy", "_y", "_yy", "base_ns", "slope_ns")

    def __init__(self, shared: "DecodePace | None" = None) -> None:
        self._shared = shared
        self._kept = _KEPT if shared is not None else _KEPT_OF_POOL  # decay factor per answer
        self._n = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        self.base_ns = 0.0
        self.slope_ns = 0.0

    def note(self, running: int, gap_ns: float) -> None:
        """Record an answer's mean inter-token time, and the number of answers in progress when it ended."""
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
        """Update to the pool's line."""
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
        """Return the predicted inter-token time with `running` answers in progress; 0 if unknown."""
        return self.base_ns + self.slope_ns * running
