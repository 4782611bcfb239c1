"""The load test: its search, its judgement, its cost, and the knee of a server whose capacity is known."""

import asyncio
import math
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.runs import RunTotals
from contracts.errors import ConfigurationError
from tests.tollkeeper.streaming_gateway import StreamingGateway, serving
from tollkeeper.loadtest.arrivals import poisson
from tollkeeper.loadtest.knee import Knee, Search, find_knee
from tollkeeper.loadtest.objective import Objective
from tollkeeper.loadtest.result import Cost, Result, cost_at
from tollkeeper.loadtest.step import Step, judge
from tollkeeper.loadtest.sweep import Load, Sweep
from tollkeeper.replay.chat import CANCELLED, Outcome
from tollkeeper.replay.payers import Assignment, Payer
from tollkeeper.replay.served_model import ServedModel
from tollkeeper.replay.session import Run
from tollkeeper.replay.trace import Trace, TraceRequest

OBJECTIVE = Objective(ttft_ms=100.0, itl_ms=20.0, attainment=0.9)


@dataclass(frozen=True)
class Measured:
    rate: float
    keeps_objective: bool


def measure_up_to(capacity: float) -> Callable[[float], Awaitable[Measured | None]]:
    async def measure(rate: float) -> Measured | None:
        return Measured(rate, rate <= capacity)

    return measure


@given(capacity=st.floats(0.1, 900.0))
def test_the_knee_is_found_within_the_resolution_below_the_capacity(capacity: float) -> None:
    search = Search(first_rate=1.0, resolution=0.1, max_steps=40)
    knee = asyncio.run(find_knee(search, measure_up_to(capacity)))
    assert knee.best is not None and knee.is_bounded
    assert knee.best.rate <= capacity < knee.best.rate * 1.1 * (1 + 1e-9)


@pytest.mark.parametrize(("capacity", "knee"), [(3.999, 2.0), (4.0, 4.0), (4.001, 4.0)])
async def test_a_rate_exactly_at_the_capacity_counts_as_kept(capacity: float, knee: float) -> None:
    found = await find_knee(Search(resolution=1.0), measure_up_to(capacity))
    assert found.best is not None and found.best.rate == knee


async def test_a_server_that_no_rate_breaks_has_its_knee_beyond_the_highest() -> None:
    found = await find_knee(Search(highest_rate=50.0), measure_up_to(math.inf))
    assert found.best is not None and found.best.rate == 50.0
    assert not found.is_bounded
    assert [step.rate for step in found.steps] == [1, 2, 4, 8, 16, 32, 50]


async def test_a_server_that_keeps_nothing_has_no_knee() -> None:
    found = await find_knee(Search(lowest_rate=0.2), measure_up_to(0.0))
    assert found.best is None
    assert [step.rate for step in found.steps] == [1, 0.5, 0.25, 0.2]


async def test_the_search_ends_after_its_steps_or_when_interrupted() -> None:
    assert len((await find_knee(Search(max_steps=3), measure_up_to(1e9))).steps) == 3

    async def interrupted(rate: float) -> Measured | None:
        return Measured(rate, True) if rate < 4 else None

    found = await find_knee(Search(), interrupted)
    assert found.best is not None and found.best.rate == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"first_rate": 0.0},
        {"first_rate": 2000.0},
        {"lowest_rate": 0.0},
        {"lowest_rate": 3.0},
        {"resolution": 0.0},
        {"max_steps": 0},
    ],
)
def test_a_search_out_of_order_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Search(**fields)


# the objective


def outcome(*, ttft_ms: float = 50.0, itl_ms: float = 10.0, late_ms: float = 0.0, tokens: int | None = 3) -> Outcome:
    gaps = 2 * itl_ms / 1000
    made = Outcome(0, "acme", 3, due_at=10.0, sent_at=10.0 + late_ms / 1000, gaps=array("f", [gaps, 0.0]))
    made.first_at = made.sent_at + ttft_ms / 1000
    made.last_at = made.done_at = made.first_at + gaps
    made.input_tokens, made.output_tokens = 7, tokens
    return made


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (outcome(ttft_ms=99.0), True),
        (outcome(ttft_ms=101.0), False),
        (outcome(ttft_ms=60.0, late_ms=39.0), True),
        (outcome(ttft_ms=60.0, late_ms=41.0), False),  # a client that is late flatters nobody
        (outcome(itl_ms=19.9), True),
        (outcome(itl_ms=20.1), False),
        (outcome(itl_ms=29.0, tokens=4), True),  # 58 ms over three further tokens
        (outcome(itl_ms=20.1, tokens=None), False),  # as many tokens as pieces came
        (outcome(itl_ms=900.0, tokens=1), True),  # nothing came between
    ],
)
def test_an_answer_keeps_the_objective_below_both_times(answer: Outcome, kept: bool) -> None:
    assert OBJECTIVE.is_kept_by(answer) is kept


def test_an_answer_that_failed_or_was_empty_keeps_nothing() -> None:
    failed, empty = outcome(), outcome()
    failed.error = "upstream_broken"
    empty.first_at = empty.last_at = None
    assert not OBJECTIVE.is_kept_by(failed) and not OBJECTIVE.is_kept_by(empty)


@pytest.mark.parametrize(("kept", "keeps"), [(89, False), (90, True), (91, True)])
def test_a_rate_keeps_the_objective_from_the_attainment_on(kept: int, keeps: bool) -> None:
    outcomes = [outcome(ttft_ms=50.0 if number < kept else 500.0) for number in range(100)]
    step = judge("r-01", 10.0, 10.0, outcomes, OBJECTIVE)
    assert (step.kept, step.attainment, step.keeps_objective) == (kept, kept / 100, keeps)
    assert step.goodput_per_s == kept / 10
    assert step.goodput_tokens_per_s == pytest.approx(kept * 3 / 10)


def test_failed_and_left_answers_count_against_the_rate() -> None:
    failed, left = outcome(), outcome()
    failed.error, left.error = "overloaded", CANCELLED
    step = judge("r-01", 4.0, 1.0, [outcome(), outcome(), failed, left], OBJECTIVE)
    assert (step.requests, step.kept, step.errors, step.left, step.attainment) == (4, 2, 1, 1, 0.5)
    assert (step.tokens_in, step.tokens_out) == (14, 6)


@pytest.mark.parametrize("fields", [(0.0, 1.0, 0.9), (1.0, 0.0, 0.9), (1.0, 1.0, 0.0), (1.0, 1.0, 1.1)])
def test_an_objective_that_means_nothing_is_refused(fields: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigurationError):
        Objective(*fields)


# arrivals


def test_arrivals_are_the_same_every_time_and_have_exactly_their_rate() -> None:
    lengths = [TraceRequest(0.0, 10, 1), TraceRequest(0.0, 20, 2)]
    trace = poisson(30.0, 100.0, lengths, 512)
    assert trace == poisson(30.0, 100.0, lengths, 512)
    assert len(trace.requests) == 3000
    times = [request.at_seconds for request in trace.requests]
    assert times == sorted(times) and 0 <= times[0] and times[-1] < 100
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert spread / mean == pytest.approx(1.0, abs=0.1)  # as Poisson arrivals have it
    assert [request.input_tokens for request in trace.requests[:4]] == [10, 20, 10, 20]


@pytest.mark.parametrize(("rate", "seconds"), [(1.0, 20.0), (2.0, 10.0), (2.01, 10.0), (100.0, 10.0)])
def test_a_slow_rate_is_watched_for_at_least_twenty_requests(rate: float, seconds: float) -> None:
    load = Load(Trace("", "", (TraceRequest(0.0, 1, 1),)), 10.0)
    assert load.seconds_at(rate) == pytest.approx(seconds)


# cost


def step(**fields: Any) -> Step:
    made = judge("r-01", 10.0, 10.0, [outcome() for _ in range(100)], OBJECTIVE)
    return Step(**{**{name: getattr(made, name) for name in Step.__slots__}, **fields})


def totals(unpriced: int = 0) -> RunTotals:
    return RunTotals(
        requests=100,
        ok=100,
        unpriced=unpriced,
        input_tokens=3_000,
        cached_input_tokens=0,
        output_tokens=1_000,
        ok_output_tokens=1_000,
        cost_usd=Decimal("0.002"),
    )


def test_cost_per_million_tokens_is_the_store_s_and_the_machine_s() -> None:
    knee = Knee((step(),), step(goodput_tokens_per_s=500.0), True)
    assert cost_at(knee, totals(), Decimal("1.80")) == Cost(
        charged_per_million_out="2.0000", charged_per_million="0.5000", machine_per_million_out="1.0000"
    )


def test_what_is_unpriced_costs_unknown_and_not_nothing() -> None:
    knee = Knee((step(),), step(), True)
    assert cost_at(knee, totals(unpriced=1), None) == Cost()
    assert cost_at(knee, None, None) == Cost()
    assert cost_at(Knee((step(),), None, True), totals(), Decimal(1)) == Cost()


def test_a_result_without_a_knee_says_null() -> None:
    result = Result(run_id="r", model="m", objective=OBJECTIVE, knee=Knee((step(),), None, True), cost=Cost())
    shown = result.as_json()
    assert shown["knee"] is None and shown["goodput_per_s"] is None
    assert len(shown["steps"]) == 1  # type: ignore[arg-type]  # a list, as JSON


# against a server


@pytest.mark.alone
@pytest.mark.drill
async def test_the_knee_of_a_server_that_serves_forty_a_second_is_found() -> None:
    """One answer at a time, 25 ms each: at 40 a second the queue grows without end, at half of that it hardly does."""
    payer = Payer(Assignment.of(Trace("", "", ()), 1).places[0], "key_1", "sk-a")
    steps: list[Step] = []
    async with serving(StreamingGateway(service_seconds=0.025)) as server:
        run = Run("load-1", server.url, ServedModel("small"))
        load = Load(Trace("", "", (TraceRequest(0.0, 20, 4),)), seconds=1.5)
        sweep = Sweep(run, load, Objective(ttft_ms=250.0, itl_ms=50.0), [payer], steps.append)
        knee = await sweep.find(Search(first_rate=15.0, resolution=0.25), asyncio.Event())
    assert knee.best is not None and knee.is_bounded
    assert 15.0 <= knee.best.rate <= 50.0
    assert knee.best.goodput_per_s == pytest.approx(knee.best.rate, rel=0.15)
    assert knee.best.goodput_tokens_per_s == pytest.approx(4 * knee.best.goodput_per_s, rel=0.001)
    assert knee.steps == tuple(steps)
    run_ids = {headers["x-tollkeeper-run-id"] for headers, _ in server.chats}
    assert run_ids == {"load-1-measurement", *(each.run_id for each in steps)}
    prompts = [body["messages"][0]["content"] for _, body in server.chats if body["max_tokens"] == 4]
    assert len(set(prompts)) == len(prompts)  # no step finds the one before in a cache


async def test_an_interrupted_load_test_tells_what_it_knows() -> None:
    payer = Payer(Assignment.of(Trace("", "", ()), 1).places[0], "key_1", "sk-a")
    stop = asyncio.Event()
    async with serving(StreamingGateway()) as server:
        run = Run("load-1", server.url, ServedModel("small"))
        load = Load(Trace("", "", (TraceRequest(0.0, 5, 2),)), seconds=0.2)
        sweep = Sweep(run, load, Objective(1000.0, 1000.0), [payer], lambda step: stop.set())
        knee = await asyncio.wait_for(sweep.find(Search(first_rate=100.0), stop), 10)
    assert len(knee.steps) == 1 and knee.best is not None and not knee.is_bounded
