"""Predictions for the alternatives of a choice, kept for a sample of requests and scored at their end.

The decision on such a record contains the prediction for the chosen replica, the actual time, and the state of the
alternatives at that time. Regret is the actual time minus the best prediction.
"""

from collections.abc import Mapping
from typing import Final

from algorithms.routing.replica import RoutedRequest
from contracts.metering.usage import Usage

_MOST_ALTERNATIVES: Final = 8


class Sample:
    """One request's predicted time to first token in nanoseconds, by replica, and the measured one."""

    __slots__ = ("_cached", "_chosen", "_outcome", "_policy", "_predicted", "_tokens")

    def __init__(
        self, policy: str, chosen: str, tokens: int, predicted_ns: Mapping[str, float], cached: Mapping[str, int]
    ) -> None:
        self._policy = policy
        self._chosen = chosen
        self._tokens = tokens
        self._predicted = predicted_ns
        self._cached = cached
        self._outcome: dict[str, object] = {}

    def note(self, replica: str, routed: RoutedRequest, usage: Usage, now_ns: int) -> None:
        """Record the outcome: which replica answered, when its first token came, and how much of the prompt was
        cached.
        """
        ttft_ns = (routed.first_ns or now_ns) - routed.began_ns
        self._outcome = {"replica": replica, "ttft_ms": _ms(ttft_ns), "cached_tokens": usage.cache_read_text}
        predicted = self._predicted.get(replica)
        if predicted is None:
            return
        best = min(self._predicted.values())
        self._outcome["error_ms"] = _ms(ttft_ns - predicted)  # prediction error
        self._outcome["regret_ms"] = _ms(max(ttft_ns - best, 0.0))  # if the best prediction had been accurate

    def facts(self) -> dict[str, object]:
        """Return the sample as the record stores it."""
        ranked = sorted(self._predicted, key=self._predicted.__getitem__)
        shown = ranked[:_MOST_ALTERNATIVES]
        if self._chosen in self._predicted and self._chosen not in shown:
            shown.append(self._chosen)
        return {
            "policy": self._policy,
            "chosen": self._chosen,
            "prompt_tokens": self._tokens,
            "predicted_ms": {name: _ms(self._predicted[name]) for name in shown},
            "cached_tokens": {name: self._cached[name] for name in shown if self._cached.get(name)},
            **({"outcome": self._outcome} if self._outcome else {}),
        }


def _ms(nanoseconds: float) -> float:
    return round(nanoseconds / 1e6, 3)
