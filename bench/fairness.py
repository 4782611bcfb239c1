"""How fairly tenants share a pool, what that costs, and whether the simulator that says so can be believed.

The scheduler is the gateway's own object throughout: alone, before a simulated engine, and before a real one.
"""

import asyncio
import gc
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from algorithms.gpu_time.step_model import StepModel
from bench.fair_engine import SEQUENCES, RealPool, fitted, real_pool
from bench.fair_workloads import backlogged_jobs, lightest, vtc_jobs
from bench.pool_simulator import Course, EngineModel, FirstComeQueue, Job, PoolSimulator
from bench.report import Report, run_bench
from bench.service_book import ServiceBook
from contracts.rules.limits import QueueSpec
from gateway.limits.queue.fair_queue import FairQueue
from gateway.limits.queue.pool_queue import PoolQueue
from gateway.limits.queue.request import QueuedRequest
from gateway.request.clock import Clock

# About Llama 2 7B on an A10G with 10,000 tokens of KV cache, the pool of the VTC paper's trace: 45 ms a step, 0.12 ms
# a token, 1 us for each token of context read. It serves the trace's ten minutes in twenty-one.
MODELLED: Final = EngineModel(
    StepModel(token_ns=120e3, ridge_tokens=0, pair_ns=0, read_ns=1e3, logit_ns=0, fixed_ns=45e6), 64, 2048
)
KV_TOKENS: Final = 10_000
MODELLED_SPEC: Final = QueueSpec(max_in_flight=64, max_tokens_in_flight=KV_TOKENS)
REAL_SPEC: Final = QueueSpec(max_in_flight=SEQUENCES, max_tokens_in_flight=64 * SEQUENCES)

LIGHT_TTFT_MUST: Final = 0.03
THROUGHPUT_MUST: Final = 0.02
WEIGHT_MUST: Final = 0.03
GROWTH_MUST: Final = 6.0  # from 10 to 10,000 tenants; the logarithm alone grows by 4
ENTER_MUST_US: Final = 3.0
AGREEMENT_MUST: Final = 0.10
_BACKLOGGED_NS: Final = 400_000_000_000
_REAL_SECONDS: Final = 60.0
_REAL_SHORTER: Final = 8.0  # the trace's lengths are divided by this, and its arrivals this much denser:
_REAL_FASTER: Final = 30.0
_CALIBRATION_JOBS: Final = 300
_SETTLED_SECONDS: Final = 1.2  # an engine's last step records come within a second


def measure(report: Report) -> None:
    """Measure shares and delays on VTC's trace, the scheduler's own time, and the simulator against an engine."""
    logging.disable(logging.WARNING)
    _measure_trace(report)
    _measure_bound(report)
    _measure_weights(report)
    _measure_decisions(report)
    _measure_entering(report)
    uvloop.run(_measure_agreement(report))


def _measure_trace(report: Report) -> None:
    jobs = vtc_jobs()
    light = lightest(jobs, 3)
    fair = PoolSimulator(FairQueue(MODELLED_SPEC), MODELLED).run(jobs)
    first_come = PoolSimulator(FirstComeQueue(64, KV_TOKENS), MODELLED).run(jobs)
    own = [course for course in fair if course.job.tenant in light]
    theirs = [course for course in first_come if course.job.tenant in light]
    report.add("light_tenants_ttft", mean_ttft_seconds(own), "s", better="lower", n=len(own))
    ratio = mean_ttft_seconds(own) / mean_ttft_seconds(theirs)
    report.add(
        "light_tenants_ttft_vs_fcfs", ratio, "x", must=LIGHT_TTFT_MUST, better="lower", n=len(own),
        ratio_to={"fcfs": ratio},
    )  # fmt: skip
    speed = tokens_a_second(fair) / tokens_a_second(first_come)
    lost = abs(1 - speed)
    report.add(
        "throughput_off_fcfs", lost, "share", must=THROUGHPUT_MUST, better="lower", n=len(jobs),
        ratio_to={"fcfs": speed},
    )  # fmt: skip


def _measure_bound(report: Report) -> None:
    """Two tenants that always have something waiting, of opposite shapes, with a third that comes and goes."""
    jobs = backlogged_jobs({"asks": (400, 40, 1), "tells": (40, 400, 1)}, each=2_000)
    jobs += [Job(second * 20_000_000_000, "visitor", 200, 200) for second in range(40)]
    book = ServiceBook(MODELLED_SPEC)
    courses = PoolSimulator(FairQueue(MODELLED_SPEC), MODELLED, book.note).run(jobs, _BACKLOGGED_NS)
    _check_backlogged(courses, ["asks", "tells"])
    longest = max(job.prompt_tokens for job in jobs)
    bound = 2 * max(MODELLED_SPEC.input_weight * longest, MODELLED_SPEC.output_weight * KV_TOKENS)
    apart = book.largest_difference("asks", "tells")
    report.add("two_backlogged_apart", apart, "weighted tokens", must=bound, better="lower", n=book.entries)
    report.add("bound_violation", max(apart - bound, 0.0), "weighted tokens", must=0.0, better="lower", n=book.entries)


def _check_backlogged(courses: Sequence[Course], tenants: Sequence[str]) -> None:
    """Make sure that what is measured is what it says: tenants that never ran out of waiting requests."""
    for tenant in tenants:
        if all(course.begun_ns is not None for course in courses if course.job.tenant == tenant):
            raise RuntimeError(f"the workload is too small: {tenant} ran out of waiting requests")


def _measure_weights(report: Report) -> None:
    weights = {"one": 1, "two": 2, "four": 4}
    jobs = backlogged_jobs({name: (100, 100, weight) for name, weight in weights.items()}, each=2_000)
    book = ServiceBook(MODELLED_SPEC)
    courses = PoolSimulator(FairQueue(MODELLED_SPEC), MODELLED, book.note).run(jobs, _BACKLOGGED_NS)
    _check_backlogged(courses, list(weights))
    per_weight = [book.service(name) / weight for name, weight in weights.items()]
    mean = statistics.fmean(per_weight)
    error = max(abs(one / mean - 1) for one in per_weight)
    report.add("weights_1_2_4_error", error, "share", must=WEIGHT_MUST, better="lower", n=book.entries)


def _measure_decisions(report: Report) -> None:
    """One decision: an arrival, the choice among all that wait, its tokens, its end."""
    rounds = 5 if report.quick else 15
    taken = {tenants: _decision_us(tenants, rounds) for tenants in (10, 100, 1_000, 10_000)}
    for tenants, us in taken.items():
        report.add(f"decision_{tenants}_tenants", us, "us", better="lower", n=rounds)
    growth = taken[10_000] / taken[10]
    report.add("decision_growth_10_to_10000", growth, "x", must=GROWTH_MUST, better="lower", n=rounds)


def _decision_us(tenants: int, rounds: int, decisions: int = 4_000) -> float:
    queue = FairQueue(QueueSpec(max_in_flight=1, max_tokens_in_flight=100_000, max_waiting=1_000_000))
    names = [f"tenant-{number}" for number in range(tenants)]
    for number in range(2 * tenants):
        queue.arrive(_request(names[number % tenants], number), number)
    best = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            newcomers = [_request(names[number * 7919 % tenants], number) for number in range(decisions)]
            began = time.perf_counter()
            for newcomer in newcomers:
                queue.arrive(newcomer, 0)
                chosen = queue.next(0)
                assert chosen is not None
                queue.charge(chosen, 64)
                queue.leave(chosen, 0)
            best = min(best, (time.perf_counter() - began) / decisions)
    finally:
        gc.enable()
    return best * 1e6


def _request(tenant: str, number: int) -> QueuedRequest:
    prompt = 50 + number * 31 % 900
    return QueuedRequest(tenant, prompt, prompt + 200)


def _measure_entering(report: Report) -> None:
    """Entering a pool that has room, the request's facts and the charge for it included; leaving is timed apart."""
    rounds = 30 if report.quick else 100
    for name, spec in (("without_queue", None), ("with_room", QueueSpec(max_in_flight=1_000_000))):
        entered, left = uvloop.run(_enter_us(spec, rounds))
        report.add(f"enter_{name}", entered, "us", must=ENTER_MUST_US, better="lower", n=rounds)
        report.add(f"leave_{name}", left, "us", better="lower", n=rounds)


async def _enter_us(spec: QueueSpec | None, rounds: int, entries: int = 500) -> tuple[float, float]:
    queue = PoolQueue("pool", spec, Clock())
    entered = left = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            places = []
            began = time.perf_counter()
            for number in range(entries):
                places.append(await queue.enter(QueuedRequest("tenant", number, number + 200)))
            entered = min(entered, (time.perf_counter() - began) / entries)
            began = time.perf_counter()
            for place in places:
                place.leave()
            left = min(left, (time.perf_counter() - began) / entries)
    finally:
        gc.enable()
    return entered * 1e6, left * 1e6


async def _measure_agreement(report: Report) -> None:
    """Play a scaled part of the trace to a real engine and to the simulator, which knows only an earlier calibration.

    What is off is told as the median of the runs' signed differences: a machine that others use speeds up as often as
    it slows down between calibration and run. Told beside it is what remains when the steps are those of the run
    itself: that is the simulator's own error, the rest the machine's.
    """
    runs = 1 if report.quick else 3
    found: list[_Figures] = []
    predicted: list[_Figures] = []
    explained: list[_Figures] = []
    with tempfile.TemporaryDirectory() as directory:
        async with real_pool(Path(directory)) as pool:
            await pool.play(_calibration()[:SEQUENCES], REAL_SPEC)  # warms it up
            for _ in range(runs):
                model, _ = await _play(pool, _calibration())
                jobs = _jobs_for(model)
                predicted.append(_figures(PoolSimulator(FairQueue(REAL_SPEC), model).run(jobs)))
                own, courses = await _play(pool, jobs)
                found.append(_figures(courses))
                explained.append(_figures(PoolSimulator(FairQueue(REAL_SPEC), own).run(jobs)))
    report.add("engine_ttft", statistics.median(one[0] for one in found), "s", better="lower", n=runs)
    report.add("engine_throughput", statistics.median(one[1] for one in found), "tok/s", n=runs)
    for name, simulated, must in (("simulator", predicted, AGREEMENT_MUST), ("simulator_own_steps", explained, None)):
        for place, metric in enumerate(("ttft", "throughput")):
            off = statistics.median(one[place] / real[place] - 1 for one, real in zip(simulated, found, strict=True))
            report.add(f"{name}_{metric}_error", abs(off), "share", must=must, better="lower", n=runs)


_Figures = tuple[float, float]  # mean time to first token in seconds, tokens a second


def _figures(courses: Sequence[Course]) -> _Figures:
    return mean_ttft_seconds(courses), tokens_a_second(courses)


async def _play(pool: RealPool, jobs: Sequence[Job]) -> tuple[EngineModel, list[Course]]:
    """Play jobs; return what their steps say of the engine, and their courses."""
    known = len(pool.shelf.steps)
    pool.lags_ns.clear()
    courses = await pool.play(jobs, REAL_SPEC)
    await asyncio.sleep(_SETTLED_SECONDS)
    return fitted(pool.shelf.steps[known:], pool.lags_ns), courses


def _scaled_trace() -> list[Job]:
    return vtc_jobs(faster=_REAL_FASTER, shorter=_REAL_SHORTER)


def _calibration() -> list[Job]:
    """Return the trace's last jobs, at a third of the time apart; the run itself plays the first ones."""
    last = _scaled_trace()[-_CALIBRATION_JOBS:]
    begins_ns = last[0].arrival_ns
    return [Job((job.arrival_ns - begins_ns) // 3, job.tenant, job.prompt_tokens, job.output_tokens) for job in last]


def _jobs_for(model: EngineModel) -> list[Job]:
    """Return as much of the trace as the model says takes a minute, but nothing of the calibration."""
    jobs = _scaled_trace()[:-_CALIBRATION_JOBS]
    courses = PoolSimulator(FirstComeQueue(SEQUENCES, 64 * SEQUENCES), model).run(jobs)
    enough = [job for job, course in zip(jobs, courses, strict=True) if _ended_seconds(course) <= _REAL_SECONDS]
    return enough or jobs[:SEQUENCES]


def _ended_seconds(course: Course) -> float:
    return float("inf") if course.ended_ns is None else course.ended_ns / 1e9


def mean_ttft_seconds(courses: Sequence[Course]) -> float:
    """Return the mean time to first token."""
    return statistics.fmean(course.ttft_ns for course in courses) / 1e9


def tokens_a_second(courses: Sequence[Course]) -> float:
    """Return tokens of prompts and outputs over the time until the last has come."""
    tokens = sum(course.job.prompt_tokens + course.job.output_tokens for course in courses)
    return tokens / max(map(_ended_seconds, courses))


if __name__ == "__main__":
    sys.exit(run_bench("fairness", measure))
