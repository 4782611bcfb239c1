"""Reads a simulation's input from the store: a range's requests as a workload, engine steps as a replica setup."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from algorithms.gpu_time.step_fit import MIN_SAMPLES
from algorithms.gpu_time.step_model import DECODE, PREFILL, StepRow, compose
from algorithms.gpu_time.step_samples import StepSample
from analytics.planner.setup import ReplicaSetup
from analytics.planner.step_pace import paced
from analytics.planner.workload import PlannedRequest, Workload
from analytics.queries import query
from analytics.rows import number_of, numbers_of, text_of
from analytics.scope import Period
from backends.store.client import Row, StoreClient
from contracts.errors import InvalidRequest

MAX_REQUESTS: Final = 2_000_000
_MAX_STEPS: Final = 50_000
_UNIT_TOKENS: Final = 128  # of a prefix, as prompts themselves are not stored


def recorded_workload(
    store: StoreClient, period: Period, *, model: str | None = None, tenant: str | None = None
) -> Workload:
    """Read a period's requests as a workload. Raises StoreUnavailable, and InvalidRequest if there are none.

    Prompts are not stored, so shared prefixes are inferred: turns of a conversation continue each other, and other
    cached tokens are a prefix common to the tenant's prompts.
    """
    parameters = {**_bounds(period), "model": model, "tenant": tenant, "row_limit": MAX_REQUESTS + 1}
    rows = store.query(query("planned_requests"), parameters)
    if len(rows) > MAX_REQUESTS:
        raise InvalidRequest(f"that time has more than {MAX_REQUESTS} requests; take a shorter one", param="hours")
    first = number_of(rows[0]["at_ns"]) if rows else 0
    conversations: dict[str, int] = {}
    tenants: dict[str, int] = {}
    requests = []
    for row in rows:
        name, conversation = text_of(row["tenant"]), text_of(row["conversation_id"])
        tokens, cached = number_of(row["input_sum"]), number_of(row["cached_sum"])
        if conversation:
            family, units = 2 * conversations.setdefault(f"{name}/{conversation}", len(conversations)), tokens
        else:
            family, units = 2 * tenants.setdefault(name, len(tenants)) + 1, cached
        keys = tuple(((family << 20) + place) for place in range(units // _UNIT_TOKENS))
        requests.append(
            PlannedRequest(
                number_of(row["at_ns"]) - first, tokens, number_of(row["output_sum"]), name, keys, conversation
            )
        )
    where = f"{model or 'all models'}, {period.start:%Y-%m-%d %H:%M} to {period.end:%Y-%m-%d %H:%M} UTC"
    return Workload(requests, f"{len(requests)} recorded requests of {where}", _UNIT_TOKENS)


def measured_setup(
    store: StoreClient, period: Period, *, model: str | None = None, kv_blocks: int | None = None
) -> ReplicaSetup:
    """Fit a replica to recorded engine steps. Raises StoreUnavailable, and InvalidRequest on too few.

    Limits that engines do not report (sequences and tokens per step) are the maximum of their steps. `kv_blocks`
    overrides the reported number. Without `model`, all steps must be of the same model.
    """
    rows = store.query(query("measured_steps"), {**_bounds(period), "model": model, "row_limit": _MAX_STEPS})
    if len(rows) < MIN_SAMPLES:
        raise InvalidRequest(
            f"{len(rows)} engine steps of {model or 'any model'} are in the store for that time; a plan needs "
            f"{MIN_SAMPLES}: choose a time in the last 72 hours in which the model ran, or give a step model",
            param="model",
        )
    models = sorted({text_of(row["model_label"]) for row in rows})
    if len(models) > 1:
        raise InvalidRequest(f"steps of {', '.join(models)} were measured; choose one with --model", param="model")
    samples, gaps, ranks = [], [], 1
    most_tokens = most_rows = blocks = 0
    for place, row in enumerate(reversed(rows)):
        samples.append(step_sample(row, place))
        step = samples[-1].step
        most_tokens, most_rows = max(most_tokens, step.tokens), max(most_rows, step.requests)
        blocks = number_of(row["blocks_total"]) or blocks
        ranks = number_of(row["ranks"])
        if row["gap_cause"] == "host":
            gaps.append(number_of(row["gap_ns"]))
    blocks = kv_blocks or blocks
    if not blocks:
        raise InvalidRequest("the measured steps have no cache size; set --kv-blocks")
    pace = paced(samples)
    return ReplicaSetup(
        steps=pace.steps,
        prompt_ratios=pace.prompt_ratios,
        decode_ratios=pace.decode_ratios,
        max_batch_tokens=max(most_tokens, most_rows),
        max_sequences=most_rows,
        kv_blocks=blocks,
        host_gap_ns=float(fmean(gaps)) if gaps else 0.0,
        ranks=ranks,
    )


def step_sample(row: Row, place: int) -> StepSample:
    """Convert a row of `measured_steps.sql` to a fit's sample; `place` is its index by time."""
    parts = step_rows(numbers_of(row["scheduled"]), numbers_of(row["context"]), numbers_of(row["phases"]))
    return StepSample(number_of(row["busy_ns"]), compose(parts, is_dry=row["gap_cause"] == "idle"), place)


def step_rows(scheduled: Sequence[float], context: Sequence[float], phases: Sequence[float]) -> list[StepRow]:
    """Return a recorded step's rows. Each has one row of logits, as records do not show which chunk ends a prompt."""
    known = phases or [
        DECODE if tokens == 1 and before else PREFILL for tokens, before in zip(scheduled, context, strict=True)
    ]
    return [
        StepRow(int(tokens), int(before), phase=int(phase))
        for tokens, before, phase in zip(scheduled, context, known, strict=True)
    ]


def _bounds(period: Period) -> dict[str, int]:
    return {"start": period.start_s, "end": period.end_s}
