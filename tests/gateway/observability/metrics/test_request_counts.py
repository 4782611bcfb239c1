"""Counts of requests: what each is counted under, and where the number of series ends."""

from contracts.access.identity import Identity
from contracts.errors import (
    AddressNotAllowed,
    AuthenticationFailed,
    BudgetExhausted,
    ControlUnavailable,
    CountersUnavailable,
    JournalFull,
    LimitExceeded,
    PermissionDenied,
    QueueFull,
    TollkeeperError,
    Unavailable,
    UnknownModel,
)
from contracts.metering.usage import LEAVES, TOKEN_LEAVES, Usage
from contracts.recording.records import RequestRecord
from contracts.serving.configuration import EMPTY_SNAPSHOT, ModelSpec
from gateway.observability.metrics.exposition import render
from gateway.observability.metrics.histogram import FIRST_TOKEN_SECONDS, Histogram
from gateway.observability.metrics.request_counts import RequestCounts
from gateway.observability.metrics.request_families import request_families
from gateway.request.request_state import RequestState
from gateway.routing.drill.standalone import standalone_chat
from tests.gateway.exposition_parser import Page

REQUESTS = "tollkeeper_requests_total"


def life_of(error: TollkeeperError | None = None, *, pool: str = "p", is_known: bool = True) -> RequestState:
    life = standalone_chat(b"", 1, 1, EMPTY_SNAPSHOT)
    life.error, life.is_authenticated = error, is_known
    life.model = ModelSpec("m", pool)
    return life


def record_of(**fields) -> RequestRecord:
    given = {"request_id": b"0" * 16, "started_at_ns": 1, "duration_ns": 1, "api": "chat.completions", **fields}
    return RequestRecord(**given)


def page_of(counts: RequestCounts) -> Page:
    return Page(b"".join(render(request_families(counts))))


def test_a_duration_belongs_below_the_bound_that_it_equals():
    for duration_ns, place in (
        (999_999, 0),
        (1_000_000, 0),
        (1_000_001, 1),
        (10_000_000_000, 15),
        (10_000_000_001, 16),
    ):
        histogram = Histogram(FIRST_TOKEN_SECONDS)
        histogram.observe(duration_ns)
        assert histogram.counts.index(1) == place
        assert (histogram.count, histogram.sum_ns) == (1, duration_ns)


def test_each_cause_of_a_refusal_has_its_name():
    causes: dict[str, TollkeeperError] = {
        "rate_limit": LimitExceeded("x"),
        "budget": BudgetExhausted("x"),
        "queue": QueueFull("x"),
        "journal": JournalFull("x"),
        "counters": CountersUnavailable("x"),
        "unavailable": Unavailable("x"),
        "permission": PermissionDenied("x"),
        "invalid_request": UnknownModel("x"),
        "other": TollkeeperError("x"),
        "auth": AuthenticationFailed("x"),
    }
    counts = RequestCounts()
    for error in causes.values():
        counts.note(life_of(error), record_of(outcome="rejected", attempts=0))
    page = page_of(counts)
    for cause in causes:
        assert page.value("tollkeeper_refusals_total", cause=cause) == 1, cause


def test_an_unknown_caller_is_refused_for_who_it_is():
    counts = RequestCounts()
    for error in (AuthenticationFailed("x"), LimitExceeded("too many guesses"), AddressNotAllowed("x")):
        counts.note_unknown_caller(life_of(error, is_known=False))
    counts.note_unknown_caller(life_of(ControlUnavailable("x"), is_known=False))
    page = page_of(counts)
    assert page.value("tollkeeper_refusals_total", cause="auth") == 3
    assert page.value("tollkeeper_refusals_total", cause="unavailable") == 1
    assert page.value(REQUESTS) == 0


def test_a_refused_request_is_counted_for_its_pool_though_its_record_names_none():
    counts = RequestCounts()
    counts.note(life_of(QueueFull("x"), pool="big"), record_of(outcome="rejected", status=503, attempts=0, wait_ns=7))
    page = page_of(counts)
    assert page.value(REQUESTS, pool="big", status="503") == 1
    assert page.value("tollkeeper_queue_wait_seconds_count", pool="big", **{"class": "standard"}) == 1
    assert page.value("tollkeeper_requests_without_cost_total") == 0, "it reached no target"


def test_series_beyond_the_bound_are_counted_together_and_none_is_lost():
    counts = RequestCounts(max_series=3)
    for number in range(10):
        counts.note(life_of(), record_of(model=f"m{number}", usage=Usage(input_text=5)))
    counts.note(life_of(), record_of(model="m2"))
    page = page_of(counts)
    assert page.value(REQUESTS) == 11
    named = {labels["model"] for labels in page.labels(REQUESTS)}
    assert named == {"m0", "m1", "m2", ""}
    assert (page.value(REQUESTS, model="m2"), page.value(REQUESTS, model="")) == (2, 7)
    assert page.value("tollkeeper_tokens_total", model="") == 35


def test_tenants_are_named_below_and_at_the_bound_and_not_above():
    counts = RequestCounts(max_tenants=2)
    for tenant in ("a", "b", "c", "d", "a", "c"):
        counts.note(life_of(), record_of(who=Identity(tenant=tenant), cost_pico_usd=10**11))
    name = "tollkeeper_tenant_requests_total"
    page = page_of(counts)
    found = {labels["tenant"]: page.value(name, **labels) for labels in page.labels(name)}
    assert found == {"a": 2, "b": 1, "": 3}
    assert page.value("tollkeeper_tenant_cost_usd_total", tenant="") == 0.3, "three tenths, summed exactly"


def test_money_is_summed_exactly():
    counts = RequestCounts()
    for _ in range(10):
        counts.note(life_of(), record_of(model="m", cost_pico_usd=100_000_000_001))
    assert page_of(counts).value("tollkeeper_cost_usd_total", model="m") == 1.00000000001


def test_every_leaf_is_counted_alone_and_beside_the_others():
    counts = RequestCounts()
    for place, leaf in enumerate(LEAVES, start=1):
        counts.note(life_of(), record_of(model="m", usage=Usage(**{leaf: place})))
    counts.note(life_of(), record_of(model="m", usage=Usage(*range(100, 100 + len(LEAVES)))))
    page = page_of(counts)
    for place, leaf in enumerate(LEAVES):
        if leaf in TOKEN_LEAVES:
            found = page.value("tollkeeper_tokens_total", leaf=leaf)
        else:
            found = page.value("tollkeeper_units_total", unit=leaf)
        assert found == place + 1 + 100 + place, leaf


def test_what_was_not_reported_is_not_counted_as_none():
    counts = RequestCounts()
    counts.note(life_of(), record_of(model="m"))
    page = page_of(counts)
    assert page.value("tollkeeper_requests_without_cost_total", model="m") == 1
    assert "tollkeeper_tokens_total" not in page.metrics
    assert page.value("gen_ai_server_time_to_first_token_seconds_count") == 0
