"""Expected usage of requests of one plan, learned from their ends at most ten times a second."""

from typing import Final

from gateway.limits.estimates.counting import TokenEstimator, learn_ratio, upper_tokens
from gateway.limits.estimates.output_estimates import SteadyEstimates, learn_length

_FRESH_NS: Final = 100_000_000  # others teach the same estimators
_EVERY_NS: Final = 20_000_000  # fifty lessons a second renew averages of twenty to two hundred requests soon enough
_FIRST_REPORTS: Final = 64  # of a tenant's requests for a model are all learned from, however fast they come


class Forecast:
    """Expected tokens of a tenant's requests for a model, as the estimators predict them. Times are Unix
    nanoseconds.
    """

    __slots__ = (
        "_bytes_per_token",
        "_factor",
        "_inputs",
        "_lengths",
        "_look_at_ns",
        "_model",
        "_outputs",
        "_ratios",
        "_tenant",
        "_until_ns",
        "output_tokens",
    )

    def __init__(self, inputs: TokenEstimator, outputs: SteadyEstimates, tenant: str, model: str) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._tenant = tenant
        self._model = model
        self._ratios = inputs.ratios(model, tenant)
        self._lengths = outputs.lengths(tenant, model)
        self._until_ns = 0  # nothing is learned before
        self._look_at_ns = 0  # what is known is used until then
        self._bytes_per_token = self._factor = 1.0
        self.output_tokens = 0  # of one choice that nobody bounds
        self._look(0)

    def input_tokens(self, prompt_bytes: int, now_ns: int) -> int:
        """Return the upper estimate of a prompt's tokens. This also refreshes `output_tokens`."""
        if now_ns >= self._look_at_ns:
            self._look(now_ns)
        return upper_tokens(prompt_bytes, self._bytes_per_token, self._factor)

    def expected_input(self, prompt_bytes: int) -> int:
        """Return the mean estimate of a prompt's tokens, from the last refresh."""
        return int(prompt_bytes / self._bytes_per_token + 0.5) or 1

    def learn(
        self, now_ns: int, prompt_bytes: int, tokens_in: int, tokens_out: int, finish_reason: str, choices: int
    ) -> None:
        """Learn from a request's tokens, which are above zero, unless another one was learned from a moment ago."""
        if now_ns < self._until_ns:
            return
        learn_ratio(self._ratios, prompt_bytes, tokens_in)
        learn_length(self._lengths, tokens_out, finish_reason, choices)
        self._look(now_ns)
        if self._look_at_ns:
            self._until_ns = now_ns + _EVERY_NS

    def _look(self, now_ns: int) -> None:
        self._look_at_ns = now_ns + _FRESH_NS if self._ratios[-1].reports >= _FIRST_REPORTS else 0
        self._bytes_per_token, self._factor = self._inputs.scale(self._tenant, self._model)
        self.output_tokens = self._outputs.estimate(self._tenant, self._model)
