"""The rows of the routing benchmark: policies on a trace, on trials, under faults; one choice's time; two hosts."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from algorithms.routing.block_map import KEY_MASK
from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.base import Policy
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import RoutingRequest
from algorithms.routing.replica import Replica
from bench.reference_policies import LongestPrefixPolicy, QueuePolicy
from bench.replica_simulator import Course, Fault, ReplicaSimulator, Request, Setting
from bench.report import Report
from bench.routing_hosts import host_rows
from bench.routing_trials import TRIALS
from bench.routing_workloads import TRACE, burst, mooncake, one_prefix, sharing
from bench.semantic import semantic_rows
from contracts.serving.pool_choices import POLICY_NAMES

TTFT_MUST: Final = 0.70
TTFT_STRETCH: Final = 0.65
HITS_MUST: Final = 0.62
BALANCE_MUST: Final = 1.25
RECOVERY_MUST: Final = 2.0  # times the undisturbed mean, from a minute after a fault on
CHOICE_8_MUST: Final = (15.0, 60.0)  # us: median, 99th percentile
CHOICE_64_MUST: Final = 60.0
BLOCK_MUST: Final = 100.0  # bytes
TRIAL_MUST: Final = 1.05  # times what the best of our other policies takes; the references are shown beside it
_REFERENCES: Final[Mapping[str, Callable[[], Policy]]] = {"longest_prefix": LongestPrefixPolicy, "queue": QueuePolicy}
_FAULT_AT: Final = 0.3  # of the trace's length
_SETTLED_SECONDS: Final = 60.0
_JUDGED_SECONDS: Final = 300.0
_BLOCKS: Final = 1_000_000
_PROMPT_BLOCKS: Final = 128


def measure(report: Report) -> None:
    """Measure policies on the trace, bounded load where prompts are shared, recovery from faults, and time."""
    requests = mooncake(Path(report.options.trace))
    _measure_policies(report, requests)
    _measure_sharing(report, requests)
    _measure_trials(report)
    _measure_faults(report, requests)
    for replicas in (8, 64):
        _measure_choice(report, replicas)
    if not report.options.simulated:
        host_rows(report)
        semantic_rows(report)


def _measure_policies(report: Report, requests: Sequence[Request]) -> None:
    for name in POLICY_NAMES:
        _add_run(report, name, name, requests, is_judged=name == "cost")
    for label, reference in _REFERENCES.items():
        _add_run(report, label, reference(), requests, is_judged=False)
    _add_run(report, "cost_no_events", "cost", requests, is_judged=True, setting=Setting(tells=False))


def _measure_sharing(report: Report, requests: Sequence[Request]) -> None:
    """All prompts begin alike: with one block, with eight, and with next to nothing of their own."""
    for name, workload in (
        ("shared_block", sharing(requests, 1)),
        ("shared_8_blocks", sharing(requests, 8)),
        ("one_prefix", one_prefix(200, 1, 20.0, 4_000)),
    ):
        _add_run(report, f"cost_{name}", "cost", workload, is_judged=name != "one_prefix")
        _add_run(report, f"least_outstanding_{name}", "least_outstanding", workload, is_judged=False)
        _add_run(report, f"longest_prefix_{name}", LongestPrefixPolicy(), workload, is_judged=False)


def _measure_trials(report: Report) -> None:
    """Play what is made to break a router: the default is to be as quick as the best of the others, and even."""
    seconds = 200.0 if report.quick else 600.0
    for name, trial in TRIALS.items():
        requests, faults = trial.requests(seconds), trial.faults(seconds, Setting().replicas)
        took: dict[str, float] = {}
        worked: list[int] = []
        played: dict[str, str | Policy] = {policy: policy for policy in POLICY_NAMES}
        played |= {label: reference() for label, reference in _REFERENCES.items()}
        for label, policy in played.items():
            simulator = ReplicaSimulator(policy, Setting(), faults)
            took[label] = mean_ttft(simulator.run(requests))
            if label == "cost":
                worked = simulator.work
        own = took.pop("cost")
        best = min([took[policy] for policy in POLICY_NAMES if policy != "cost"])
        n, others = len(requests), {label: own / ttft for label, ttft in took.items()}
        report.add(f"trial_{name}_ttft", own, "s", better="lower", n=n, ratio_to=others)
        report.add(f"trial_{name}_to_best_other", own / best, "x", must=TRIAL_MUST, better="lower", n=n)
        report.add(f"trial_{name}_balance", balance(worked), "busiest/mean", must=BALANCE_MUST, better="lower", n=n)


def _add_run(
    report: Report,
    label: str,
    policy: str | Policy,
    requests: Sequence[Request],
    *,
    is_judged: bool,
    setting: Setting | None = None,
) -> None:
    simulator = ReplicaSimulator(policy, setting or Setting())
    courses = simulator.run(requests)
    own = Path(report.options.trace) != TRACE
    unjudged = "it is what the bounded rule is compared with" if not is_judged else ""
    if is_judged and own:
        unjudged = "the bounds are for the trace kept here; another's are its judge's"
    count = len(courses)
    is_bounded = unjudged if own or not (is_judged or policy == "cost") else ""
    report.add(f"{label}_ttft", mean_ttft(courses), "s", must=TTFT_MUST if is_judged else None,
               stretch=TTFT_STRETCH, better="lower", n=count, unjudged=unjudged)  # fmt: skip
    report.add(f"{label}_hits", hit_rate(courses), "share", must=HITS_MUST if is_judged else None,
               n=count, unjudged=unjudged)  # fmt: skip
    report.add(f"{label}_balance", balance(simulator.work), "busiest/mean", must=BALANCE_MUST,
               better="lower", n=count, unjudged=is_bounded)  # fmt: skip


def _measure_faults(report: Report, requests: Sequence[Request]) -> None:
    """One replica turns slow for good, one dies for half a minute, arrivals come ten times as fast for ten seconds."""
    last = requests[-1].at_ns / 1e9
    at = round(last * _FAULT_AT)
    runs: tuple[tuple[str, Sequence[Request], Sequence[Fault]], ...] = (
        ("slow_5x", requests, (Fault(at, 1e9, slower=5.0),)),
        ("dead_30_s", requests, (Fault(at, at + 30.0, is_dead=True),)),
        ("burst_10x_10_s", burst(requests, at, 10.0, 10.0), ()),
    )
    for policy in POLICY_NAMES:
        undisturbed = ReplicaSimulator(policy, Setting()).run(requests)
        usual = mean_ttft(_between(undisturbed, at + _SETTLED_SECONDS, at + _SETTLED_SECONDS + _JUDGED_SECONDS))
        for label, workload, faults in runs:
            courses = ReplicaSimulator(policy, Setting(), faults).run(workload)
            settled = _between(courses, at + _SETTLED_SECONDS, at + _SETTLED_SECONDS + _JUDGED_SECONDS)
            unjudged = "" if policy == "cost" else "it is what the default is compared with"
            report.add(f"{policy}_{label}_after_60_s", mean_ttft(settled) / usual, "x undisturbed",
                       must=RECOVERY_MUST, better="lower", n=len(settled), unjudged=unjudged)  # fmt: skip
            hit = _between(courses, at, at + _SETTLED_SECONDS)
            report.add(f"{policy}_{label}_first_60_s", mean_ttft(hit) / usual, "x undisturbed",
                       better="lower", n=len(hit))  # fmt: skip


def _between(courses: Sequence[Course], from_second: float, to_second: float) -> list[Course]:
    found = [course for course in courses if from_second <= course.request.at_ns / 1e9 < to_second]
    return found or list(courses)


def mean_ttft(courses: Sequence[Course]) -> float:
    """Return the mean time to first token, in seconds."""
    return statistics.fmean(course.ttft_seconds for course in courses)


def hit_rate(courses: Sequence[Course]) -> float:
    """Return the share of all prompts' tokens that were cached where they were sent."""
    return sum(course.cached for course in courses) / sum(course.request.tokens for course in courses)


def balance(work: Sequence[int]) -> float:
    """Return the most that one replica computed, by the mean."""
    return max(work) / statistics.fmean(work)


def _measure_choice(report: Report, replicas: int) -> None:
    """One choice: the prompt found in the index and a replica ranked first, in the CPU's time, and a block's memory."""
    source = random.Random(replicas)
    fleet, prompts = _filled(replicas, source)
    taken = fleet.index.bytes / fleet.index.blocks
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        times = _choices(fleet, prompts, source, 3_000 if report.quick else 20_000)
    finally:
        gc.enable()
        gc.unfreeze()
    median, last = times[len(times) // 2] / 1e3, times[len(times) * 99 // 100] / 1e3
    must = CHOICE_8_MUST if replicas == 8 else (CHOICE_64_MUST, None)
    n = len(times)
    report.add(f"choice_{replicas}_p50", median, "us", must=must[0], better="lower", n=n)
    report.add(f"choice_{replicas}_p99", last, "us", must=must[1], better="lower", n=n)
    report.add(f"block_{replicas}_replicas", taken, "bytes", must=BLOCK_MUST, better="lower", n=fleet.index.blocks)


def _filled(replicas: int, source: random.Random) -> tuple[Fleet, list[list[int]]]:
    """Build a fleet that holds a million blocks, in prompts that one to four replicas have, some in part."""
    fleet = Fleet(policy_named("cost", source.random))
    fleet.follow([(f"replica-{place}", 1) for place in range(replicas)])
    prompts: list[list[int]] = []
    while len(prompts) < _BLOCKS // _PROMPT_BLOCKS:
        keys = [source.getrandbits(60) for _ in range(_PROMPT_BLOCKS)]
        prompts.append(keys)
        holders = source.sample(fleet.replicas, source.choice((1, 1, 2, 4)))
        fleet.index.stored(holders[0].bit, keys)
        for replica in holders[1:]:
            fleet.index.stored(replica.bit, keys[: source.randint(1, _PROMPT_BLOCKS)])
    for replica in fleet.replicas:
        replica.is_exact = True
    return fleet, prompts


def _choices(fleet: Fleet, prompts: Sequence[Sequence[int]], source: random.Random, count: int) -> list[int]:
    """Choose while four requests a replica are in progress; return the choices' times, sorted, in nanoseconds."""
    clock: Callable[[], int] = time.thread_time_ns  # what others on this machine do is not the choice's doing
    now, times = 1_000_000_000_000, []
    under_way: list[Callable[[int], None]] = []
    for _ in range(count):
        now += 2_000_000
        known = source.choice(prompts)
        own = [source.getrandbits(60) for _ in range(source.randint(0, 64))]
        shared = known[: source.randint(1, len(known))]
        keys = [key & KEY_MASK for key in [*shared, *own]]  # numbers of its own, as the gateway makes them of hashes
        ask = RoutingRequest(16 * len(keys) + 5, keys, 16, 200)
        began = clock()
        view = fleet.view(ask, now)
        place = fleet.rank(ask, view)[0]
        times.append(clock() - began)
        under_way.append(_begin(fleet, fleet.replicas[place], ask, view.cached(place), now))
        if len(under_way) > 4 * len(fleet.replicas):
            under_way.pop(0)(now)
    return sorted(times)


def _begin(fleet: Fleet, replica: Replica, ask: RoutingRequest, cached: int, now: int) -> Callable[[int], None]:
    hold = fleet.begin(replica, ask, cached, now)

    def end(at: int) -> None:
        fleet.first_token(replica, hold, at)
        fleet.end(replica, hold, at, output_tokens=100)

    return end
