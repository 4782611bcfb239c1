"""Requests counted when their records are built: one lookup per request, then plain integers.

Counts are stored together by labels that the configuration and the gateway name: api, provider, model, pool, outcome,
status. Sums over some of these are computed on request. Values chosen by callers (key, user, tag, a model that does not
exist) are never labels; a tenant is one only if that is switched on, up to a bound.
"""

from operator import itemgetter
from typing import Final, TypeAlias

from msgspec.structs import astuple

from contracts.api.answer_parts import NOTHING_FOUND
from contracts.errors import TollkeeperError
from contracts.metering.usage import LEAVES, UNKNOWN_USAGE, Usage
from contracts.pricing.price_state import price_state
from contracts.pricing.prices import Cost
from contracts.recording.records import RequestRecord
from contracts.rules.limits import PriorityClass
from gateway.observability.metrics.histogram import DURATION_SECONDS, FIRST_TOKEN_SECONDS, WAIT_SECONDS, Histogram
from gateway.request.request_state import RequestState

_INPUT_TEXT: Final = LEAVES.index("input_text")
_CACHE_READ_TEXT: Final = LEAVES.index("cache_read_text")
_OUTPUT_TEXT: Final = LEAVES.index("output_text")
_OUTPUT_REASONING: Final = LEAVES.index("output_reasoning")
_COMMON: Final = (_INPUT_TEXT, _CACHE_READ_TEXT, _OUTPUT_TEXT, _OUTPUT_REASONING)
_RARE: Final = itemgetter(*(place for place in range(len(LEAVES)) if place not in _COMMON))
MAX_SERIES: Final = 1000  # more than these are counted together, without labels

# api, operation, provider, model, pool, outcome, status. Not of a fixed length to the compiler, which would copy it.
SeriesKey: TypeAlias = tuple[str | int, ...]
_REST: Final[SeriesKey] = ("", "", "", "", "", "", 0)


class RequestSeries:
    """Counts of requests with equal labels. Money is in pico-USD, usage in the order of LEAVES."""

    __slots__ = (
        "cost_pico_usd",
        "duration",
        "first_token",
        "further_attempts",
        "overdraft_tokens",
        "requests",
        "schema_failures",
        "schema_judged",
        "tokens",
        "tool_calls",
        "unknown_usage",
        "unpriced",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.duration = Histogram(DURATION_SECONDS)
        self.first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.tokens = [0] * len(LEAVES)
        self.cost_pico_usd = 0
        self.unpriced = 0
        self.unknown_usage = 0
        self.overdraft_tokens = 0
        self.further_attempts = 0
        self.tool_calls = 0
        self.schema_judged = 0
        self.schema_failures = 0

    def take(self, record: RequestRecord) -> None:
        """Count a request."""
        self.requests += 1
        self.duration.observe(record.duration_ns)
        if not record.attempts and not record.cache.endswith("hit"):
            return  # no model was asked, and nothing given: it used nothing
        if record.ttft_ns is not None:
            self.first_token.observe(record.ttft_ns)
        if record.usage is not UNKNOWN_USAGE:
            _add(self.tokens, record.usage)
        state = price_state(record)
        if state in ("unpriced", "partly_unpriced"):
            self.unpriced += 1
        elif state == "unknown_usage":
            self.unknown_usage += 1
        self.cost_pico_usd += record.cost_pico_usd or 0
        if record.attempts > 1:
            self.further_attempts += record.attempts - 1
        if record.overdraft_tokens:
            self.overdraft_tokens += record.overdraft_tokens
        if record.tool_calls:
            self.tool_calls += record.tool_calls
        if record.schema_failed is not None:
            self.schema_judged += 1
            self.schema_failures += record.schema_failed


class TenantCounts:
    """Counts of one tenant, or of all tenants beyond the bound together."""

    __slots__ = ("cost_pico_usd", "requests", "tokens")

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}  # by outcome
        self.tokens = [0] * len(LEAVES)
        self.cost_pico_usd = 0

    def add(self, outcome: str, usage: Usage, cost_pico_usd: int | None) -> None:
        """Count a request."""
        self.requests[outcome] = self.requests.get(outcome, 0) + 1
        if usage is not UNKNOWN_USAGE:
            _add(self.tokens, usage)
        self.cost_pico_usd += cost_pico_usd or 0


class RequestCounts:
    """All requests of this process since its start. `max_tenants` is how many tenants are counted by name."""

    def __init__(self, max_tenants: int = 0, max_series: int = MAX_SERIES) -> None:
        self._max_tenants = max_tenants
        self._max_series = max_series
        self.series: dict[SeriesKey, RequestSeries] = {}
        self.tenants: dict[str, TenantCounts] = {}  # "" for all beyond the bound
        self.waits: dict[tuple[str, PriorityClass], Histogram] = {}  # by pool and class
        # By what a request was refused with, and whether its caller was known.
        self.refusals: dict[tuple[type[TollkeeperError], bool], int] = {}

    def note(self, life: RequestState, record: RequestRecord) -> None:
        """Count a request of an authenticated caller."""
        pool = life.model.pool if life.model is not None else ""  # the record has none where no target was asked
        key = (record.api, record.operation, record.provider, record.model, pool, record.outcome, record.status)
        series = self.series.get(key)
        if series is None:
            series = self._open(key)
        series.take(record)
        if record.wait_ns is not None:
            self._wait_of(pool, life.priority).observe(record.wait_ns)
        if record.outcome == "rejected":
            self._note_refusal(life)
        if self._max_tenants:
            self._tenant(record.who.tenant).add(record.outcome, record.usage, record.cost_pico_usd)

    def note_alike(self, life: RequestState, alike: SeriesKey) -> None:
        """Count a successful request that belongs to a series of equal ones: answered by its only attempt, or from the
        cache.
        """
        series = self.series.get(alike)
        if series is None:
            series = self._open(alike)
        usage, cost, attempt = life.usage, life.cost, life.last_attempt
        series.requests += 1
        series.duration.observe(max(life.ended_ns - life.began_ns, 0))
        first_ns = None if attempt is None else attempt.first_at_ns
        if first_ns is not None:
            series.first_token.observe(max(first_ns - life.began_ns, 0))
        tokens_in, tokens_out = life.tokens_in, life.tokens_out
        if life.teaches_plan and tokens_in is not None and tokens_out is not None:  # text is all there is
            series.tokens[_INPUT_TEXT] += tokens_in
            series.tokens[_OUTPUT_TEXT] += tokens_out
        elif usage is not UNKNOWN_USAGE:
            _add(series.tokens, usage)
        total = cost.total_pico_usd
        if total is None or cost.unpriced:
            _count_unpriced(series, cost, usage)
        series.cost_pico_usd += total or 0
        if life.overdraft_tokens:
            series.overdraft_tokens += life.overdraft_tokens
        found = life.findings
        if found is not NOTHING_FOUND:
            series.tool_calls += found.tool_calls or 0
            series.schema_judged += found.schema_failed is not None
            series.schema_failures += found.schema_failed or False
        if self._max_tenants:
            self._tenant(life.who.tenant).add("ok", usage, total)

    def note_lost(self, record: RequestRecord) -> None:
        """Count a request that ended with a crash, by its record."""
        key = (record.api, record.operation, record.provider, record.model, record.pool, record.outcome, record.status)
        series = self.series.get(key)
        if series is None:
            series = self._open(key)
        series.take(record)
        if self._max_tenants:
            self._tenant(record.who.tenant).add(record.outcome, record.usage, record.cost_pico_usd)

    def note_unknown_caller(self, life: RequestState) -> None:
        """Count a request whose caller was not authenticated."""
        self._note_refusal(life)

    def _note_refusal(self, life: RequestState) -> None:
        if life.error is not None:
            cause = (type(life.error), life.is_authenticated)
            self.refusals[cause] = self.refusals.get(cause, 0) + 1

    def _open(self, key: SeriesKey) -> RequestSeries:
        if len(self.series) >= self._max_series:
            key = _REST
        return self.series.setdefault(key, RequestSeries())

    def _wait_of(self, pool: str, priority: PriorityClass) -> Histogram:
        found = self.waits.get((pool, priority))
        if found is None:
            if len(self.waits) >= self._max_series:
                pool = ""
            found = self.waits.setdefault((pool, priority), Histogram(WAIT_SECONDS))
        return found

    def _tenant(self, tenant: str) -> TenantCounts:
        found = self.tenants.get(tenant)
        if found is None:
            if len(self.tenants) >= self._max_tenants + ("" in self.tenants):
                tenant = ""
            found = self.tenants.setdefault(tenant, TenantCounts())
        return found


def _count_unpriced(series: RequestSeries, cost: Cost, usage: Usage) -> None:
    """Count a request whose cost is not known, or not all of it."""
    if cost.basis == "free" or cost.total_pico_usd is not None:
        series.unpriced += bool(cost.unpriced)
    elif cost.basis != "unknown_usage" and (usage.has_units or (usage.has_input and usage.has_output)):
        series.unpriced += 1
    else:
        series.unknown_usage += 1


def _add(tokens: list[int], usage: Usage) -> None:
    """Add up tokens by leaf. The most frequent leaves are added without a loop, in a third of the time."""
    counts = astuple(usage)
    if any(_RARE(counts)):
        for place, count in enumerate(counts):
            tokens[place] += count or 0
    else:
        tokens[_INPUT_TEXT] += usage.input_text or 0
        tokens[_CACHE_READ_TEXT] += usage.cache_read_text or 0
        tokens[_OUTPUT_TEXT] += usage.output_text or 0
        tokens[_OUTPUT_REASONING] += usage.output_reasoning or 0
