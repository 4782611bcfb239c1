"""Estimates of output that stay what they were until they are clearly wrong.

A refused request is kept a place of the size it asked for. Were its estimate to have grown by a few tokens when it
comes back, the place would be too small for it, and the wait it was told untrue.
"""

from collections import OrderedDict
from typing import Final

from gateway.limits.estimates.output_estimates import Lengths, OutputEstimator

_TOLERANCE: Final = 0.2  # of what was said before; what an answer lacks by it, it is given while it runs
_MAX_PAIRS: Final = 8192


class SteadyEstimates:
    """What an OutputEstimator says, changed only where it differs by more than a fifth from what was said before."""

    def __init__(self, estimator: OutputEstimator) -> None:
        self._estimator = estimator
        self._said: OrderedDict[tuple[str, str], int] = OrderedDict()

    def learn(self, tenant: str, model: str, output_tokens: int, finish_reason: str, choices: int = 1) -> None:
        """Add a settled request, as the estimator does."""
        self._estimator.learn(tenant, model, output_tokens, finish_reason, choices)

    def lengths(self, tenant: str, model: str) -> list[Lengths]:
        """Return what the estimator has learned of a pair, and goes on to learn."""
        return self._estimator.lengths(tenant, model)

    def estimate(self, tenant: str, model: str, max_tokens: int | None = None, choices: int = 1) -> int:
        """Return the output tokens to reserve for all choices, each at most `max_tokens`."""
        newest = self._estimator.estimate(tenant, model)
        said = self._said.get((tenant, model))
        if newest != said and (said is None or abs(newest - said) > _TOLERANCE * said):
            said = self._said[tenant, model] = newest
            if len(self._said) > _MAX_PAIRS:
                self._said.popitem(last=False)
        return (said if max_tokens is None or said < max_tokens else max_tokens) * choices
