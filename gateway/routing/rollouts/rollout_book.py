"""This process's state of live rollouts: both arms' tallies, and whether the candidate is stopped here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from algorithms.rollouts.rollout_tally import ArmTally, ObservedRequest, RolloutTotals, SlidingTally
from contracts.recording.records import Arm
from contracts.serving.rollouts import RolloutSpec
from gateway.request.clock import Clock

_SECOND: Final = 10**9


@dataclass(slots=True)
class _Page:
    spec: RolloutSpec
    candidate: SlidingTally
    incumbent: SlidingTally
    incumbent_before: ArmTally = field(default_factory=ArmTally)
    step_requests: int = 0
    stopped: str = ""  # why no request goes to the candidate here, until the rollout changes


class RolloutBook:
    """One page for each live rollout. Stopping takes effect with the next request, before it is published."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pages: dict[str, _Page] = {}

    def sync(self, rollouts: Iterable[RolloutSpec]) -> None:
        """Adopt the current live rollouts: a restarted one is new, a continued one keeps its tallies."""
        kept: dict[str, _Page] = {}
        for spec in rollouts:
            page = self._pages.get(spec.id)
            window_ns = spec.rules.guards.window_seconds * _SECOND
            if page is None or _is_new(page, spec):
                page = _Page(spec, SlidingTally(window_ns), SlidingTally(window_ns))
            elif page.spec.term != spec.term:
                page.stopped = ""
                if page.spec.step != spec.step or page.spec.stepped_at_ns != spec.stepped_at_ns:
                    page.step_requests = 0
            page.spec = spec
            kept[spec.id] = page
        self._pages = kept

    def note(self, spec: RolloutSpec, arm: Arm, seen: ObservedRequest) -> None:
        """Count a completed request."""
        page = self._pages.get(spec.id)
        if page is None:
            return
        now_ns = self._clock.monotonic_ns()
        if arm == "candidate":
            page.candidate.add(seen, now_ns)
            page.step_requests += 1
        else:
            page.incumbent.add(seen, now_ns)
            page.incumbent_before.add(seen)

    def remember(self, spec: RolloutSpec, before: ArmTally) -> None:
        """Record what the incumbent did at this gateway before this process started."""
        page = self._pages.get(spec.id)
        if page is not None:
            page.incumbent_before.merge(before)

    def observed(self, spec: RolloutSpec) -> RolloutTotals:
        """Return this gateway's observations of a rollout."""
        page = self._pages.get(spec.id)
        if page is None:
            return RolloutTotals()
        now_ns = self._clock.monotonic_ns()
        return RolloutTotals(
            page.candidate.total(now_ns), page.incumbent.total(now_ns), page.incumbent_before, page.step_requests
        )

    def stop(self, spec: RolloutSpec, reason: str) -> None:
        """Send no more requests to the candidate until the rollout changes; do nothing if it has changed already."""
        page = self._pages.get(spec.id)
        if page is not None and page.spec == spec:
            page.stopped = reason

    def stopped(self, spec: RolloutSpec) -> str:
        """Return why the candidate gets no requests; empty if it gets its share."""
        page = self._pages.get(spec.id)
        return "" if page is None else page.stopped


def _is_new(page: _Page, spec: RolloutSpec) -> bool:
    """Return whether a rollout is a new attempt without observations, and not the continuation of the page's rollout.

    Earlier observations would end it at once: those of another candidate, or of this one before it was rolled back.
    """
    before = page.spec
    if _compared(before) != _compared(spec):
        return True
    began_again = before.state == "running" and spec.step <= before.step and spec.stepped_at_ns != before.stepped_at_ns
    return began_again or (bool(page.stopped) and before.rules != spec.rules)


def _compared(spec: RolloutSpec) -> tuple[object, ...]:
    return spec.salt, spec.route, spec.incumbent, spec.candidate, spec.rules.guards
