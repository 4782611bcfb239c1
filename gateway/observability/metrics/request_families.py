"""The counts of requests as Prometheus metrics. Each metric sums over the labels that it does not have."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from contracts.errors import (
    AuthenticationFailed,
    BudgetExhausted,
    CountersUnavailable,
    InvalidRequest,
    JournalFull,
    LimitExceeded,
    PermissionDenied,
    QueueFull,
    TollkeeperError,
    Unavailable,
)
from contracts.metering.usage import INPUT_LEAVES, LEAVES, OUTPUT_LEAVES, TOKEN_LEAVES, UNIT_LEAVES
from contracts.pricing.money import PICO_USD_PER_USD
from gateway.observability.metrics.exposition import Family, Sample, counter
from gateway.observability.metrics.histogram import DURATION_SECONDS, FIRST_TOKEN_SECONDS, sum_of
from gateway.observability.metrics.request_counts import RequestCounts, RequestSeries, SeriesKey, TenantCounts

# The first that fits is the cause.
_CAUSES: Final[tuple[tuple[type[TollkeeperError], str], ...]] = (
    (LimitExceeded, "rate_limit"),
    (BudgetExhausted, "budget"),
    (QueueFull, "queue"),
    (JournalFull, "journal"),
    (CountersUnavailable, "counters"),
    (Unavailable, "unavailable"),
    (AuthenticationFailed, "auth"),
    (PermissionDenied, "permission"),
    (InvalidRequest, "invalid_request"),
    (TollkeeperError, "other"),
)
_INPUTS: Final = tuple(map(LEAVES.index, INPUT_LEAVES))
_OUTPUTS: Final = tuple(map(LEAVES.index, OUTPUT_LEAVES))
_BY_MODEL: Final = ("model", "pool")
_LABELS: Final = ("api", "operation", "provider", "model", "pool", "outcome", "status")  # in the order of SeriesKey


def request_families(counts: RequestCounts) -> Iterator[Family]:
    """Yield the request metrics. Each one is summed when it is rendered."""
    series = counts.series
    yield Family(
        "tollkeeper_requests_total",
        "counter",
        "Requests of known callers by outcome; status is that of the outcome, even for a stream that was cut later.",
        _sums(series, ("api", *_BY_MODEL, "outcome", "status"), lambda one: one.requests),
    )
    yield Family(
        "gen_ai_server_request_duration_seconds",
        "histogram",
        "Time from a request's arrival at the gateway to the end of its answer.",
        _durations(series),
    )
    yield Family(
        "gen_ai_server_time_to_first_token_seconds",
        "histogram",
        "Time from a request's arrival at the gateway to the first output passing it.",
        _first_tokens(series),
    )
    yield Family(
        "tollkeeper_tokens_total",
        "counter",
        "Tokens used, in disjoint leaves: their sum is the total. Unreported usage is not included.",
        _tokens(series),
    )
    yield Family(
        "tollkeeper_units_total",
        "counter",
        "Usage other than tokens: images, milliseconds of audio, characters of speech, requests priced per request.",
        _units(series),
    )
    yield Family(
        "tollkeeper_cost_usd_total",
        "counter",
        "Cost by price card; exact sum, shown as a float.",
        [
            (labels, cost / PICO_USD_PER_USD)
            for labels, cost in _totals(series, _BY_MODEL, lambda one: one.cost_pico_usd)
        ],
    )
    for name, help, number in _COUNTED:
        yield Family(name, "counter", help, _sums(series, _BY_MODEL, number))
    yield counter(
        "tollkeeper_overdraft_tokens_total",
        "Tokens used beyond what could be charged against limits.",
        sum(one.overdraft_tokens for one in list(series.values())),
    )
    yield Family(
        "tollkeeper_refusals_total",
        "counter",
        "Requests refused before a model was called, by cause.",
        _refusals(counts),
    )
    yield Family(
        "tollkeeper_queue_wait_seconds",
        "histogram",
        "Wait in a pool's queue in seconds, for pools with a queue.",
        [({"pool": pool, "class": priority}, waits) for (pool, priority), waits in list(counts.waits.items())],
    )
    yield from _tenant_families(list(counts.tenants.items()))


_COUNTED: Final[tuple[tuple[str, str, Callable[[RequestSeries], int]], ...]] = (
    (
        "tollkeeper_requests_without_cost_total",
        "Requests whose cost is not known, whole or in part: usage unknown, or no price. Failed ones cost nothing.",
        lambda one: one.unpriced + one.unknown_usage,
    ),
    (
        "tollkeeper_requests_without_price_total",
        "Of these, requests whose usage is known and for which no price card has a price, or none for a kind of token.",
        lambda one: one.unpriced,
    ),
    (
        "tollkeeper_further_attempts_total",
        "Tries at a target beyond a request's first.",
        lambda one: one.further_attempts,
    ),
    (
        "tollkeeper_tool_calls_total",
        "Tool calls in answers to requests that offered tools.",
        lambda one: one.tool_calls,
    ),
    (
        "tollkeeper_schema_checks_total",
        "Whole answers to requests for JSON (response_format) whose text was checked.",
        lambda one: one.schema_judged,
    ),
    (
        "tollkeeper_schema_failures_total",
        "Of these, answers with text that is not valid JSON, those cut short included.",
        lambda one: one.schema_failures,
    ),
)


def _grouped(
    series: dict[SeriesKey, RequestSeries], names: Iterable[str]
) -> list[tuple[dict[str, str], list[RequestSeries]]]:
    places = [(name, _LABELS.index(name)) for name in names]
    groups: dict[tuple[str, ...], list[RequestSeries]] = {}
    for key, one in list(series.items()):
        groups.setdefault(tuple(str(key[place]) for _, place in places), []).append(one)
    return [(dict(zip([name for name, _ in places], values, strict=True)), found) for values, found in groups.items()]


def _totals(
    series: dict[SeriesKey, RequestSeries], names: Iterable[str], number: Callable[[RequestSeries], int]
) -> list[tuple[dict[str, str], int]]:
    return [(labels, sum(map(number, found))) for labels, found in _grouped(series, names)]


def _sums(
    series: dict[SeriesKey, RequestSeries], names: Iterable[str], number: Callable[[RequestSeries], int]
) -> list[Sample]:
    return [(labels, total) for labels, total in _totals(series, names, number)]


def _tokens(series: dict[SeriesKey, RequestSeries]) -> Iterator[Sample]:
    for labels, found in _grouped(series, _BY_MODEL):
        for leaf in TOKEN_LEAVES:
            if total := sum(one.tokens[LEAVES.index(leaf)] for one in found):
                direction = "input" if leaf in INPUT_LEAVES else "output"
                yield {**labels, "direction": direction, "leaf": leaf}, total


def _units(series: dict[SeriesKey, RequestSeries]) -> Iterator[Sample]:
    for labels, found in _grouped(series, _BY_MODEL):
        for leaf in UNIT_LEAVES:
            if total := sum(one.tokens[LEAVES.index(leaf)] for one in found):
                yield {**labels, "unit": leaf}, total


def _durations(series: dict[SeriesKey, RequestSeries]) -> Iterator[Sample]:
    for labels, found in _grouped(series, ("operation", "provider", "model", "outcome")):
        outcome = labels.pop("outcome")
        error = {} if outcome == "ok" else {"error_type": outcome}
        yield _gen_ai(labels) | error, sum_of(DURATION_SECONDS, [one.duration for one in found])


def _first_tokens(series: dict[SeriesKey, RequestSeries]) -> Iterator[Sample]:
    for labels, found in _grouped(series, ("operation", "provider", "model")):
        total = sum_of(FIRST_TOKEN_SECONDS, [one.first_token for one in found])
        if total.count:
            yield _gen_ai(labels), total


def _gen_ai(labels: dict[str, str]) -> dict[str, str]:
    return {
        "gen_ai_operation_name": labels["operation"],
        "gen_ai_provider_name": labels["provider"],
        "gen_ai_request_model": labels["model"],
    }


def _refusals(counts: RequestCounts) -> list[Sample]:
    totals = dict.fromkeys([cause for _, cause in _CAUSES], 0)
    for (kind, is_known), count in list(counts.refusals.items()):
        cause = next(cause for base, cause in _CAUSES if issubclass(kind, base))
        if not is_known and cause in ("rate_limit", "permission"):
            cause = "auth"  # too many guesses, an address or a tenant that may not
        totals[cause] += count
    return [({"cause": cause}, count) for cause, count in totals.items()]


def _tenant_families(tenants: list[tuple[str, TenantCounts]]) -> Iterator[Family]:
    if not tenants:
        return
    yield Family(
        "tollkeeper_tenant_requests_total",
        "counter",
        "Requests by tenant and outcome; tenant is empty beyond the configured number of tenants.",
        (
            ({"tenant": name, "outcome": outcome}, count)
            for name, found in tenants
            for outcome, count in list(found.requests.items())
        ),
    )
    yield Family(
        "tollkeeper_tenant_tokens_total",
        "counter",
        "Tokens used by tenant.",
        (
            ({"tenant": name, "direction": direction}, count)
            for name, found in tenants
            for direction, count in (
                ("input", sum(found.tokens[place] for place in _INPUTS)),
                ("output", sum(found.tokens[place] for place in _OUTPUTS)),
            )
        ),
    )
    yield Family(
        "tollkeeper_tenant_cost_usd_total",
        "counter",
        "Cost by tenant.",
        (({"tenant": name}, found.cost_pico_usd / PICO_USD_PER_USD) for name, found in tenants),
    )
