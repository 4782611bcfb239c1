"""Simulates a plan that came as a message: finds its workload and replica, and reports its progress."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from analytics.planner.question import PlanJob
from analytics.planner.recorded import measured_setup, recorded_workload
from analytics.planner.setup import ReplicaSetup
from analytics.planner.setup_file import setup_of_json
from analytics.planner.what_if import simulate
from analytics.planner.workload import Workload, poisson
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest

MAX_HOURS: Final = 720


def run_job(job: PlanJob, store: StoreClient, tell: Callable[[str], None]) -> dict[str, Any]:
    """Find the workload and the replica, and simulate them; `tell` is called with each stage's text as it begins.

    Raises InvalidRequest on an impossible plan, StoreUnavailable if recorded traffic cannot be read.
    """
    if not 0 < job.hours <= MAX_HOURS:
        raise InvalidRequest(f"hours is {job.hours:g}; use more than 0, at most {MAX_HOURS}", param="hours")
    now = datetime.now(UTC)
    period = Period(now - timedelta(hours=job.hours), now)
    workload = _workload(job, store, period, tell)
    return simulate(job.what_if, workload, _setup(job, store, period, tell), tell)


def _workload(job: PlanJob, store: StoreClient, period: Period, tell: Callable[[str], None]) -> Workload:
    if job.made is not None:
        made = job.made
        tell(f"generating {made.requests:,} requests")
        return poisson(made.requests, made.per_second, made.input_tokens, made.output_tokens, seed=job.what_if.seed)
    tell(f"reading the requests of the last {job.hours:g} hours")
    return recorded_workload(store, period, model=job.model or None)


def _setup(job: PlanJob, store: StoreClient, period: Period, tell: Callable[[str], None]) -> ReplicaSetup:
    if job.setup.strip():
        return setup_of_json(job.setup.encode(), "the given replica")
    tell("fitting a replica to the steps that engines measured")
    return measured_setup(store, period, model=job.model or None, kv_blocks=job.what_if.kv_blocks)
