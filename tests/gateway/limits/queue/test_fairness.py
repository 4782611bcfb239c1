"""VTC's promises, on the simulator with the gateway's own scheduler."""

from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import StepModel
from bench.fair_workloads import backlogged_jobs, lightest, vtc_jobs
from bench.pool_simulator import EngineModel, FirstComeQueue, Job, PoolSimulator
from bench.service_book import ServiceBook
from contracts.rules.limits import QueueSpec
from gateway.limits.queue.fair_queue import FairQueue

KV_TOKENS = 2_000
STEPS = StepModel(token_ns=120e3, ridge_tokens=0, pair_ns=0, read_ns=1e3, logit_ns=0, fixed_ns=45e6)
ENGINE = EngineModel(STEPS, 32, 512)
SPEC = QueueSpec(max_in_flight=32, max_tokens_in_flight=KV_TOKENS)
HALF_MINUTE_NS = 30_000_000_000

shapes = st.tuples(st.integers(2, 300), st.integers(2, 300), st.sampled_from([1, 2, 4]))


def play(shapes: dict, spec=SPEC, visitors=(), each=150):
    jobs = backlogged_jobs(shapes, each=each) + list(visitors)
    book = ServiceBook(spec)
    courses = PoolSimulator(FairQueue(spec), ENGINE, book.note).run(jobs, HALF_MINUTE_NS)
    backlogged = {course.job.tenant for course in courses if course.begun_ns is None}
    return jobs, book, backlogged


@settings(max_examples=15, deadline=None)
@given(shapes, shapes, st.lists(st.tuples(st.integers(0, 29), st.integers(1, 200)), max_size=5))
def test_two_backlogged_tenants_are_never_further_apart_than_vtcs_bound(one, other, visits) -> None:
    visitors = [Job(second * 1_000_000_000, "visitor", tokens, tokens) for second, tokens in visits]
    jobs, book, backlogged = play({"one": (*one[:2], 1), "other": (*other[:2], 1)}, visitors=visitors)
    if not {"one", "other"} <= backlogged:
        return  # one ran out of requests, so nothing is promised
    longest = max(job.prompt_tokens for job in jobs)
    bound = 2 * max(SPEC.input_weight * longest, SPEC.output_weight * KV_TOKENS)
    assert book.largest_difference("one", "other") <= bound


def test_weights_1_2_4_get_service_in_proportion() -> None:
    weights = {"one": 1, "two": 2, "four": 4}
    spec = QueueSpec(max_in_flight=16, max_tokens_in_flight=KV_TOKENS)
    _, book, backlogged = play({name: (20, 20, weight) for name, weight in weights.items()}, spec, each=600)
    assert backlogged == set(weights)
    shares = [book.service(name) / weight for name, weight in weights.items()]
    assert max(shares) / min(shares) < 1.06


def test_on_vtcs_trace_the_lightest_tenants_hardly_wait_and_nothing_is_lost() -> None:
    jobs = vtc_jobs()[:500]
    light = lightest(jobs, 3)
    spec = QueueSpec(max_in_flight=64, max_tokens_in_flight=10_000)
    fair = PoolSimulator(FairQueue(spec), ENGINE).run(jobs)
    first_come = PoolSimulator(FirstComeQueue(64, 10_000), ENGINE).run(jobs)
    ends = [max(course.ended_ns or 0 for course in courses) for courses in (fair, first_come)]
    assert abs(ends[0] / ends[1] - 1) < 0.02
    waits = [sum(c.ttft_ns for c in courses if c.job.tenant in light) for courses in (fair, first_come)]
    assert waits[0] < 0.1 * waits[1]
