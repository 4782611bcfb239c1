"""Sums in the order of time say what the requests come to, wherever a range begins; so do lists and searches."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analytics.explorer.found
import analytics.overview
import analytics.percentiles
from analytics.explorer.found import count_matches, find_requests
from analytics.explorer.question import RequestQuestion, Sort
from analytics.explorer.search import Search, read_search
from analytics.explorer.summed import summed_parts
from analytics.latency.over_time import latency_over_time
from analytics.overview import LatencyQuestion, overview, overview_latency, with_latency
from analytics.scope import Period, Scope
from analytics.series import series
from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from contracts.rules.objectives import TIMED
from tests.analytics.cost.records import request

START = datetime(2051, 3, 1, tzinfo=UTC)
END = START + timedelta(days=20)
MS = 10**6
Record = Callable[[Sequence[RequestRecord]], None]
LENGTHS = (timedelta(minutes=40), timedelta(hours=20), timedelta(days=1), timedelta(days=7), timedelta(days=19))


def made(number: int) -> RequestRecord:
    """One of three hundred requests of three tenants over twenty days, at odd moments."""
    return request(
        START + timedelta(seconds=number * 5_743.31),
        who=Identity(f"tenant-{number % 3}", f"team-{number % 2}"),
        model=f"model-{number % 4}",
        outcome=("ok", "error", "cancelled", "rejected", "ok")[number % 5],
        status=(200, 502, 499, 429, 200)[number % 5],
        usage=Usage(input_text=number * 40, output_text=3),
        cost_pico_usd=None if number % 7 == 0 else number * 1_000,
        duration_ns=number * 31 * MS,
        ttft_ns=number * MS,
        gaps=pack_gaps([number * 10, number * 20]),
    )


@pytest.fixture(scope="module")
def rows(record: Record) -> list[RequestRecord]:
    found = [made(number) for number in range(1, 300)]
    record(found)
    return found


def began(row: RequestRecord) -> datetime:
    return datetime.fromtimestamp(row.started_at_ns / 1e9, UTC)


def scopes() -> Iterator[Scope]:
    for length in LENGTHS:
        end = END - timedelta(hours=9, minutes=17, seconds=23)
        yield Scope(end - length, end, asked_at=END)


def test_charts_of_all_tenants_say_what_their_requests_come_to(reader: StoreClient, rows: list[RequestRecord]) -> None:
    for scope in scopes():
        within = [row for row in rows if scope.covered.start <= began(row) < scope.covered.end]
        for by in ("tenant", "model"):
            found = series(reader, scope, by)
            counted = {name: sum(point.requests for point in points) for name, points in found.groups.items()}
            assert counted == Counter(row.who.tenant if by == "tenant" else row.model for row in within), (scope, by)
            cost = sum((point.cost_usd for points in found.groups.values() for point in points), Decimal(0))
            assert cost == Decimal(sum(row.cost_pico_usd or 0 for row in within)).scaleb(-12)
            for place, start in enumerate(found.steps):
                there = sum(start <= began(row) < start + found.step for row in within)
                assert sum(points[place].requests for points in found.groups.values()) == there
        total = overview(reader, scope).total
        assert (total.requests, total.errors) == (len(within), sum(row.outcome == "error" for row in within))


def test_times_of_all_tenants_are_those_of_each(reader: StoreClient, rows: list[RequestRecord]) -> None:
    for scope in scopes():
        whole = latency_over_time(reader, scope)
        parts = [
            latency_over_time(reader, Scope(scope.start, scope.end, f"tenant-{number}", asked_at=END))
            for number in range(3)
        ]
        assert not whole.is_empty
        for measure in TIMED:
            for place, counted in enumerate(whole.over_time[measure]):
                summed = sum((part.over_time[measure][place].counts for part in map(_counters, parts)), Counter[int]())
                assert counted.counts == summed
            by_prompt = {name: each[measure].counts for name, each in whole.by_prompt.items()}
            for name, counts in by_prompt.items():
                told = [Counter(part.by_prompt[name][measure].counts) for part in parts if name in part.by_prompt]
                assert counts == sum(told, Counter[int]())


def _counters(answer: Any) -> Any:
    class Counted:
        over_time = {
            name: [type("Of", (), {"counts": Counter(each.counts)}) for each in line]
            for name, line in answer.over_time.items()
        }

    return Counted


@settings(max_examples=12)
@given(
    start_s=st.floats(0, 19 * 86_400, allow_nan=False),
    length_s=st.floats(1, 20 * 86_400, allow_nan=False),
    age=st.sampled_from([timedelta(0), timedelta(days=10), timedelta(days=95)]),
    tenant=st.sampled_from([None, "tenant-1"]),
    team=st.sampled_from([None, "team-1"]),
)
def test_matches_counted_from_sums_are_the_requests(
    reader: StoreClient,
    rows: list[RequestRecord],
    start_s: float,
    length_s: float,
    age: timedelta,
    tenant: str | None,
    team: str | None,
) -> None:
    start = (START + timedelta(seconds=start_s)).replace(microsecond=0) + timedelta(milliseconds=round(start_s) % 1000)
    end = min(start + timedelta(seconds=length_s), END)
    if end <= start:
        return
    question = RequestQuestion(Period(start, end), tenant, team, asked_at=END + age)
    found = count_matches(reader, question)
    wanted = Counter(
        row.outcome
        for row in rows
        if start <= began(row) < end and tenant in (None, row.who.tenant) and team in (None, row.who.team)
    )
    assert {outcome: sum(counts) for outcome, counts in found.outcomes.items()} == wanted
    for place, step in enumerate(found.steps):
        there = [row for row in rows if max(step, start) <= began(row) < min(step + found.step, end)]
        there = [row for row in there if tenant in (None, row.who.tenant) and team in (None, row.who.team)]
        assert sum(counts[place] for counts in found.outcomes.values()) == len(there)


@given(
    start=st.floats(0, 10**6, allow_nan=False),
    length=st.floats(0.001, 10**6, allow_nan=False),
    step=st.sampled_from([60, 900, 3_600, 10_800, 86_400, 7 * 86_400]),
    age_days=st.integers(0, 120),
)
def test_parts_lie_in_each_other(start: float, length: float, step: int, age_days: int) -> None:
    period = Period(START + timedelta(seconds=start), START + timedelta(seconds=start + length))
    parts: Any = summed_parts(RequestQuestion(period, asked_at=period.start + timedelta(days=age_days)), step)
    first, last = period.start.timestamp(), period.end.timestamp()
    for unit, seconds in (("minute", 60), ("hour", 3_600), ("day", 86_400)):
        begins, ends = parts[f"first_{unit}"], parts[f"end_{unit}"]
        assert begins <= ends
        if begins < ends:
            assert first <= begins and ends <= last and begins % seconds == ends % seconds == 0
            assert step % seconds == 0
            first, last = begins, ends


def test_the_newest_of_all_tenants_are_listed_page_by_page(reader: StoreClient, record: Record) -> None:
    now = datetime.now(UTC) - timedelta(hours=1)
    name = f"model-{uuid4()}"
    mine = [
        request(now - timedelta(seconds=number * 7.123), who=Identity(f"tenant-{number % 9}"), model=name)
        for number in range(70)
    ]
    record(mine)
    question = RequestQuestion(Period(now - timedelta(days=20), now + timedelta(seconds=1)), model=name)
    pages = [find_requests(reader, RequestQuestion(question.period, model=name, page=page)).requests for page in (1, 2)]
    assert [len(page) for page in pages] == [50, 20]
    assert [each.request_id for page in pages for each in page] == [UUID(bytes=row.request_id) for row in mine]


def test_a_part_of_a_name_is_found_over_all_tenants_with_the_index_and_without(
    reader: StoreClient, record: Record, store: Any
) -> None:
    at, mark = START + timedelta(days=300), uuid4().hex[:8]
    names = [f"{mark}_Ann%A", f"{mark}xAnn", f"{mark}-\\Ärger"]
    rows = [request(at, who=Identity(f"tenant-{place}", user=name)) for place, name in enumerate(names)]
    other = [request(at, error_code=f"{mark}_odd", outcome="error"), request(at, conversation_id=f"C-{mark}_odd")]
    record([*rows, *other])
    period = Period(at - timedelta(days=1), at + timedelta(days=1))

    def found(word: str | None = None, user: str | None = None) -> set[UUID]:
        question = RequestQuestion(period, search=Search(word=word, user=user))
        page = find_requests(reader, question)
        assert count_matches(reader, question, page.searched).total == len(page.requests)
        assert count_matches(reader, question).total == len(page.requests)
        return {each.request_id for each in page.requests}

    ids = [UUID(bytes=row.request_id) for row in [*rows, *other]]
    for _ in range(2):
        assert found(word=f"{mark.upper()}_ann") == {ids[0]}
        assert found(word="%a", user=names[0]) == {ids[0]} and found(user=names[0].lower()) == set()
        assert found(word=f"{mark}-\\Ä") == {ids[2]} and found(user=names[2]) == {ids[2]}
        assert found(word=f"{mark}_ODD") == {ids[3], ids[4]}
        assert found(word=f"{mark}") == set(ids) and found(word=f"{mark}%") == set()
        writer = store.client("writer")
        writer.command("ALTER TABLE requests MATERIALIZE INDEX word_in_end_user", settings={"mutations_sync": 2})
        writer.close()


def test_what_was_come_upon_in_a_search_is_not_counted_again(
    reader: StoreClient, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, mark = START + timedelta(days=340), uuid4().hex[:8]
    record(
        [
            request(
                at + timedelta(minutes=number * 7.77),
                who=Identity(f"tenant-{number % 3}", user=f"{mark}-{number}"),
                outcome=("ok", "error")[number % 2],
                duration_ns=number * MS,
            )
            for number in range(120)
        ]
    )
    within = Period(at - timedelta(hours=3), at + timedelta(days=2))
    sorts: tuple[Sort, ...] = ("newest", "duration")
    asked: list[str] = []
    query = reader.query

    def noted(sql: str, *more: Any, **named: Any) -> Any:
        asked.append(sql)
        return query(sql, *more, **named)

    monkeypatch.setattr(reader, "query", noted)
    listed: list[list[UUID]] = []
    for told in (5_000, 60):
        monkeypatch.setattr(analytics.explorer.found, "_MATCHES_TOLD", told)
        for sort in sorts:
            questions = [RequestQuestion(within, search=Search(word=mark), sort=sort, page=page) for page in (1, 2, 3)]
            pages = [find_requests(reader, question) for question in questions]
            assert [(len(page.requests), page.has_more) for page in pages] == [(50, True), (50, True), (20, False)]
            listed.append([each.request_id for page in pages for each in page.requests])
            counted = count_matches(reader, questions[0])
            for page in pages:
                asked.clear()
                assert count_matches(reader, page.question, page.searched) == counted
                is_told = told == 5_000 or page.question.page == 3  # the last page has come upon all
                assert (asked == []) is is_told
            assert counted.total == 120 and sum(counted.outcomes["error"]) == 60
    assert len(set(listed[0])) == 120 and all(found == listed[0] for found in listed)


def test_an_overview_is_quick_where_percentiles_would_be_made_of_rows(
    reader: StoreClient, rows: list[RequestRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analytics.overview, "EXACT_SAMPLES", 10)
    monkeypatch.setattr(analytics.percentiles, "EXACT_SAMPLES", 10)
    cold = next(scope for scope in scopes() if scope.end - scope.start == timedelta(days=1))
    quick, whole = overview(reader, cold, is_quick=True), overview(reader, cold)
    assert not quick.has_latency and quick.latency.ttft is None and quick.total == whole.total
    assert whole.has_latency and whole.latency.ttft is not None and whole.method == "sketch"
    left_out = LatencyQuestion.of(quick)
    assert with_latency(quick, overview_latency(reader, left_out)) == whole
    later = replace(quick, ttft_samples=quick.ttft_samples + 1, lines=())
    assert LatencyQuestion.of(later) == left_out, "one answer does for as long as the hours are the same"
    month = Scope(START, END, asked_at=END)
    assert overview(reader, month, is_quick=True) == overview(reader, month)


@pytest.mark.parametrize("length", [timedelta(hours=6), timedelta(days=14)])
def test_percentiles_that_come_later_are_of_the_minutes_or_hours_that_were_counted(
    reader: StoreClient, rows: list[RequestRecord], length: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it does not fill of its first and last, the longest range of minutes (hours) is longer than these."""
    monkeypatch.setattr(analytics.overview, "EXACT_SAMPLES", 1)
    end = END - timedelta(hours=9, minutes=17, seconds=23)
    scope = Scope(end - length, end, asked_at=END)
    quick, whole = overview(reader, scope, is_quick=True), overview(reader, scope)
    assert not quick.has_latency and whole.latency.ttft is not None
    assert with_latency(quick, overview_latency(reader, LatencyQuestion.of(quick))) == whole


def test_what_is_typed_is_asked_for_as_it_stands() -> None:
    typed = read_search(r"'A_b%c\d' user:X_y")
    assert typed.word_pattern == r"%a\_b\%c\\d%" and typed.user_pattern == r"x\_y"
    assert Search().word_pattern == "%%"
