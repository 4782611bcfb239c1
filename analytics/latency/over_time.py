"""Histograms of time to first token, inter-token and end-to-end latency, over time and by prompt length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from analytics.latency.histogram import BOUNDS_TENTHS_MS, Histogram
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period, Scope
from backends.store.client import Row, StoreClient
from contracts.errors import InvalidRequest
from contracts.rules.objectives import INDICATORS_KEPT, PROMPT_CLASSES, TIMED, PromptClass, Timed

_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class LatencyOverTime:
    """Histograms of each latency, one per entry of `steps` (starts, UTC), and by prompt length over the whole range.

    Requests count as for objectives: refused ones do not, and only complete answers have a duration. A request's
    inter-token latency is its own 95th percentile. `period` is the covered range.
    """

    period: Period
    step: timedelta
    steps: tuple[datetime, ...]
    over_time: Mapping[Timed, tuple[Histogram, ...]]
    by_prompt: Mapping[PromptClass, Mapping[Timed, Histogram]]

    def whole(self, measure: Timed) -> Histogram:
        """Return one latency's histogram over the whole range."""
        return sum(self.over_time[measure], Histogram())

    @property
    def is_empty(self) -> bool:
        """Return whether no request was measured."""
        return not any(histogram.counts for each in self.over_time.values() for histogram in each)


def latency_over_time(store: StoreClient, scope: Scope) -> LatencyOverTime:
    """Return the latency histograms of a scope. Hourly counts are stored for 90 days, counts per minute for 7.

    A team's are counted from its requests, which takes time in proportion to their number. Raises InvalidRequest if the
    range begins before the stored counts, StoreUnavailable.
    """
    _check_kept(scope)
    starts = scope.step_starts
    rows = _rows(store, scope, {**scope.parameters(), "step": starts.step, "origin": scope.step_origin}, starts.step)
    places = {start: place for place, start in enumerate(starts)}
    over_time: dict[Timed, list[dict[int, int]]] = {measure: [{} for _ in starts] for measure in TIMED}
    by_prompt: dict[str, dict[str, dict[int, int]]] = {}
    for row in rows:
        measure, above, count = text_of(row["measure_name"]), number_of(row["above"]), number_of(row["request_sum"])
        if row["is_over_time"]:
            over_time[cast(Timed, measure)][places[number_of(row["step_start"])]][above] = count
        else:
            by_prompt.setdefault(text_of(row["prompt_label"]), {}).setdefault(measure, {})[above] = count
    return LatencyOverTime(
        scope.covered,
        timedelta(seconds=starts.step),
        tuple(datetime.fromtimestamp(start, UTC) for start in starts),
        {measure: tuple(Histogram(counts) for counts in each) for measure, each in over_time.items()},
        {
            prompt: {measure: Histogram(by_prompt[prompt].get(measure, {})) for measure in TIMED}
            for prompt in PROMPT_CLASSES
            if prompt in by_prompt
        },
    )


def _rows(store: StoreClient, scope: Scope, parameters: dict[str, object], step: int) -> Sequence[Row]:
    """Read a scope's counts from the cheapest table; a team's are counted from its requests."""
    if scope.team is not None:
        return store.query(query("latency_steps_of_team"), {**parameters, "bounds": list(BOUNDS_TENTHS_MS)})
    if scope.tenant is None and scope.grain != "minute":
        rollup = "model_steps_day" if step % _DAY_SECONDS == 0 and scope.grain == "day" else "model_steps_hour"
        return store.query(query("latency_steps_of_all"), {**parameters, "rollup": rollup})
    rollup = "indicators_minute" if scope.grain == "minute" else "indicators_hour"
    return store.query(query("latency_steps"), {**parameters, "rollup": rollup})


def _check_kept(scope: Scope) -> None:
    """Raise InvalidRequest on a range whose first days are deleted from rollups; they would look empty."""
    oldest = (scope.asked_at - INDICATORS_KEPT).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if scope.team is None and scope.start < oldest:
        raise InvalidRequest(
            f"times are kept for {INDICATORS_KEPT.days} days, since {oldest:%Y-%m-%d} UTC, and the range begins on "
            f"{scope.start:%Y-%m-%d}; choose a later start, or a team, whose requests are counted one by one",
            param="from",
        )
