"""One step of a load test: requests at one rate, evaluated against the objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tollkeeper.loadtest.objective import Objective
from tollkeeper.replay.chat import CANCELLED, Outcome
from tollkeeper.replay.summary import percentile_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The figures of one rate. Goodput counts answers that met the objective, and their output tokens.

    `left`: answers that had not ended when the step stopped waiting; they count as missed. Rates are per second of
    arrivals, so that waiting for the last answers does not lower them.
    """

    run_id: str
    rate: float
    seconds: float
    requests: int
    kept: int
    errors: int
    left: int
    attainment: float
    keeps_objective: bool
    goodput_per_s: float
    goodput_tokens_per_s: float
    tokens_in: int
    tokens_out: int
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    itl_ms_p50: float | None
    itl_ms_p95: float | None
    lateness_ms_p99: float | None


def judge(run_id: str, rate: float, seconds: float, outcomes: Sequence[Outcome], objective: Objective) -> Step:
    """Evaluate a step's outcomes against the objective. `seconds`: duration of the arrivals."""
    kept = [outcome for outcome in outcomes if objective.is_kept_by(outcome)]
    good = [outcome for outcome in outcomes if not outcome.error]
    left = sum(outcome.error == CANCELLED for outcome in outcomes)
    attainment = len(kept) / len(outcomes) if outcomes else 0.0
    ttft = sorted(outcome.first_at - outcome.due_at for outcome in good if outcome.first_at is not None)
    gaps = sorted(chain.from_iterable(outcome.gaps for outcome in good))
    return Step(
        run_id=run_id,
        rate=round(rate, 4),
        seconds=round(seconds, 3),
        requests=len(outcomes),
        kept=len(kept),
        errors=len(outcomes) - len(good) - left,
        left=left,
        attainment=round(attainment, 4),
        keeps_objective=attainment >= objective.attainment,
        goodput_per_s=round(len(kept) / seconds, 4),
        goodput_tokens_per_s=round(sum(outcome.output_tokens or 0 for outcome in kept) / seconds, 3),
        tokens_in=sum(outcome.input_tokens or 0 for outcome in good),
        tokens_out=sum(outcome.output_tokens or 0 for outcome in good),
        ttft_ms_p50=percentile_ms(ttft, 0.5),
        ttft_ms_p95=percentile_ms(ttft, 0.95),
        itl_ms_p50=percentile_ms(gaps, 0.5),
        itl_ms_p95=percentile_ms(gaps, 0.95),
        lateness_ms_p99=percentile_ms(sorted(outcome.late_seconds for outcome in outcomes), 0.99),
    )
