"""Requests by target and by route, with their prefix cache hits."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """Requests that reached a target. `retried` needed more than one attempt; tokens are sums of reported usage."""

    requests: int = 0
    errors: int = 0
    retried: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    ttft_count: int = 0
    ttft_sum_ns: int = 0

    def __add__(self, other: "Use") -> "Use":
        return Use(
            self.requests + other.requests,
            self.errors + other.errors,
            self.retried + other.retried,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.ttft_count + other.ttft_count,
            self.ttft_sum_ns + other.ttft_sum_ns,
        )

    @property
    def error_share(self) -> float | None:
        """Return failed over all requests, 0 to 1; `None` without requests."""
        return self.errors / self.requests if self.requests else None

    @property
    def retried_share(self) -> float | None:
        """Return the share of requests with more than one attempt, 0 to 1; `None` without requests."""
        return self.retried / self.requests if self.requests else None

    @property
    def cached_share(self) -> float | None:
        """Return the share of prompt tokens found in a cache, 0 to 1; `None` if no input was reported."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    @property
    def mean_ttft_ns(self) -> float | None:
        """Return the mean time to first token in nanoseconds; `None` if none was measured."""
        return self.ttft_sum_ns / self.ttft_count if self.ttft_count else None


@dataclass(frozen=True, slots=True)
class UseLine:
    """Use of one target by model and route; empty: requests without a route, or without a target."""

    pool: str
    target: str
    model: str
    route: str
    use: Use


def total_of(lines: Iterable[UseLine]) -> Use:
    """Return the sum of all lines."""
    return sum((line.use for line in lines), Use())


def by_target(lines: Iterable[UseLine]) -> dict[tuple[str, str], Use]:
    """Return sums of lines by pool and target; the target is empty for requests that reached none."""
    found: defaultdict[tuple[str, str], Use] = defaultdict(Use)
    for line in lines:
        found[line.pool, line.target] += line.use
    return dict(found)


def by_route(lines: Iterable[UseLine]) -> dict[str, dict[str, Use]]:
    """Return sums of lines by route and answering model, without requests that have no route."""
    found: defaultdict[str, dict[str, Use]] = defaultdict(dict)
    for line in lines:
        if line.route:
            models = found[line.route]
            models[line.model] = models.get(line.model, Use()) + line.use
    return dict(found)
