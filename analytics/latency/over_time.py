"""Times to the first token, between tokens and from end to end: histograms over time, and by how long prompts were."""

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
    """Histograms of each time, one per entry of `steps` (starts, UTC), and by prompt class over the whole range.

    Counted are the requests that an objective would count: not what was refused, and of durations only what was
    answered whole. The time between tokens is each request's own 95th percentile. `period` is what is covered.
    """

    period: Period
    step: timedelta
    steps: tuple[datetime, ...]
    over_time: Mapping[Timed, tuple[Histogram, ...]]
    by_prompt: Mapping[PromptClass, Mapping[Timed, Histogram]]

    def whole(self, measure: Timed) -> Histogram:
        """Return one time's histogram over the whole range."""
        return sum(self.over_time[measure], Histogram())

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was measured."""
        return not any(histogram.counts for each in self.over_time.values() for histogram in each)


def latency_over_time(store: StoreClient, scope: Scope) -> LatencyOverTime:
    """Count a scope's requests by how long they took. Hours are kept for 90 days, minutes for 7.

    A team's are counted from the requests themselves, which takes as long as it has many. Raises InvalidRequest if a
    range begins before what is kept, StoreUnavailable.
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
    """Ask the table that has a scope's counts at the least cost; a team's are counted from the requests."""
    if scope.team is not None:
        return store.query(query("latency_steps_of_team"), {**parameters, "bounds": list(BOUNDS_TENTHS_MS)})
    if scope.tenant is None and scope.grain != "minute":
        rollup = "model_steps_day" if step % _DAY_SECONDS == 0 and scope.grain == "day" else "model_steps_hour"
        return store.query(query("latency_steps_of_all"), {**parameters, "rollup": rollup})
    rollup = "indicators_minute" if scope.grain == "minute" else "indicators_hour"
    return store.query(query("latency_steps"), {**parameters, "rollup": rollup})


def _check_kept(scope: Scope) -> None:
    """Refuse a range whose first days the rollups have forgotten: they would look as if nobody had asked anything."""
    oldest = (scope.asked_at - INDICATORS_KEPT).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if scope.team is None and scope.start < oldest:
        raise InvalidRequest(
            f"times are kept for {INDICATORS_KEPT.days} days, since {oldest:%Y-%m-%d} UTC, and the range begins on "
            f"{scope.start:%Y-%m-%d}; choose a later start, or a team, whose requests are counted one by one",
            param="from",
        )
