"""Output estimates that stay constant until they are clearly wrong.

A refused request gets a retry slot of the size that it requested. If its estimate had grown by a few tokens at the
retry, the slot would be too small, and the stated retry time would be wrong.
"""

from collections import OrderedDict
from typing import Final

from gateway.limits.estimates.output_estimates import Lengths, OutputEstimator

_TOLERANCE: Final = 0.2  # relative; an answer that needs more extends its reservation while it runs
_MAX_PAIRS: Final = 8192


class SteadyEstimates:
    """The estimates of an OutputEstimator, changed only if they differ by more than a fifth from the last value."""

    def __init__(self, estimator: OutputEstimator) -> None:
        self._estimator = estimator
        self._said: OrderedDict[tuple[str, str], int] = OrderedDict()

    def learn(self, tenant: str, model: str, output_tokens: int, finish_reason: str, choices: int = 1) -> None:
        """Add a settled request, as the estimator does."""
        self._estimator.learn(tenant, model, output_tokens, finish_reason, choices)

    def lengths(self, tenant: str, model: str) -> list[Lengths]:
        """Return what the estimator has learned about a pair; it continues to learn."""
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
