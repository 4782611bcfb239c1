"""`steptime-as/1`: a step's measured GPU time, split over the requests in it so that the parts sum to it exactly.

Pure functions: the engine host calls them for each step, the planner and the router use the same model. What is in
no step (idle, host gaps, loading) is in `algorithms/gpu_time/ledger.py`; how the model is fitted, in
`algorithms/gpu_time/step_fit.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from algorithms.gpu_time.step_model import PREFILL, StepModel, StepRow
from contracts.recording.records import GpuShare

METHOD: Final = "steptime-as/1"
_MANTISSA_BITS: Final = 53  # of a float: scaled by this power of two, weights become integers and lose nothing big
_MAX_EXPONENT: Final = 1000


def split_exactly(total: int, weights: Sequence[float]) -> list[int]:
    """Split a whole number in proportion to weights, by largest remainder: the parts sum to it exactly.

    Every part is within 1 of its exact share, equal weights differ by at most 1, and a weight of 0 gets 0. Which
    weights get an odd unit depends on remainder and weight alone; only among equal weights does place decide.
    With no positive weight there is nobody to give to: all parts are 0. Raises ValueError on a negative total.
    """
    if total < 0:
        raise ValueError(f"cannot split a negative amount: {total}")
    largest = max(weights, default=0.0)
    if largest <= 0 or not total:
        return [0] * len(weights)
    exponent = _MANTISSA_BITS - math.frexp(largest)[1]
    if exponent > _MAX_EXPONENT:  # weights below 1e-280, so small that their scale is not a float
        whole = [int(math.ldexp(weight, exponent)) for weight in weights]
    else:
        scale = 2.0**exponent
        whole = [int(weight * scale) for weight in weights]
    divisor = sum(whole)
    quotas = [divmod(total * weight, divisor) for weight in whole]
    parts = [quotient for quotient, _ in quotas]
    odd = total - sum(parts)
    if odd:
        # Fewer units are left than rows with a remainder, so none goes to a weight of 0.
        order = sorted(range(len(parts)), key=lambda place: (quotas[place][1], whole[place]), reverse=True)
        for place in order[:odd]:
            parts[place] += 1
    return parts


@dataclass(frozen=True, slots=True)
class Attribution:
    """How one step was split: `parts_ns` runs parallel to its rows and sums to the step's busy time."""

    parts_ns: list[int]
    predicted_ns: float
    fit_version: str
    confidence: float
    method: str = METHOD


def attribute(model: StepModel, busy_ns: int, rows: Sequence[StepRow], *, is_dry: bool = False) -> Attribution:
    """Split a step's measured time over its rows in integer nanoseconds; `is_dry`: the device stood still before.

    A step in which nothing was scheduled (a dummy batch) charges nobody; the ledger shows its time on a line of
    its own. Where the model's parts are all zero, tokens decide. Raises ValueError on a negative count or time.
    """
    weights = model.weights(rows, is_dry=is_dry)
    predicted_ns = math.fsum(weights)  # exactly rounded, so the order of rows does not show
    if predicted_ns <= 0:
        weights = [float(row.scheduled) for row in rows]
    return Attribution(
        parts_ns=split_exactly(busy_ns, weights),
        predicted_ns=predicted_ns,
        fit_version=model.version,
        confidence=step_confidence(model.confidence, busy_ns, predicted_ns, sum(map(bool, weights))),
    )


def step_confidence(fit_confidence: float, busy_ns: float, predicted_ns: float, requests: int) -> float:
    """Return how sure a split is, 0 to 1: the fit's confidence times the ratio of predicted and measured time.

    The ratio is taken so that it is at most 1. A step of one request needs no model: 1.
    """
    if requests <= 1:
        return 1.0
    larger = max(busy_ns, predicted_ns)
    return fit_confidence * min(busy_ns, predicted_ns) / larger if larger > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RowTime:
    """A row's nanoseconds by what they were for; the three sum to its part of the step."""

    useful_ns: int
    recompute_ns: int
    wasted_ns: int


def classify(row: StepRow, part_ns: int) -> RowTime:
    """Separate useful time from waste: an aborted request's whole part is wasted (the client's); the recomputed share
    of the scheduled tokens, rounded down, is recompute (the platform's).
    """
    if row.aborted:
        return RowTime(0, 0, part_ns)
    recompute_ns = part_ns * min(row.recompute, row.scheduled) // row.scheduled if row.scheduled else 0
    return RowTime(part_ns - recompute_ns, recompute_ns, 0)


@dataclass(slots=True)
class RequestTime:
    """What one request has been charged so far, over its steps."""

    prefill_ns: int = 0
    decode_ns: int = 0
    recompute_ns: int = 0
    wasted_ns: int = 0
    _sure_ns: float = field(default=0.0, repr=False)

    @property
    def total_ns(self) -> int:
        """Return the sum of all parts so far."""
        return self.prefill_ns + self.decode_ns + self.recompute_ns + self.wasted_ns

    def add(self, row: StepRow, part_ns: int, confidence: float) -> None:
        """Add one step's part. Encoding counts as prefill: both happen before the first token."""
        useful_ns = part_ns
        if row.aborted or row.recompute:  # rare, and this is called for each row of each step
            time = classify(row, part_ns)
            useful_ns = time.useful_ns
            self.recompute_ns += time.recompute_ns
            self.wasted_ns += time.wasted_ns
        if row.phase == PREFILL or row.phase > 1:
            self.prefill_ns += useful_ns
        else:
            self.decode_ns += useful_ns
        self._sure_ns += part_ns * confidence

    def share(self, kv_block_seconds: float = 0.0) -> GpuShare:
        """Return the record's form; confidence is the mean over the steps, weighted by their nanoseconds."""
        total_ns = self.total_ns
        return GpuShare(
            prefill_ns=self.prefill_ns,
            decode_ns=self.decode_ns,
            recompute_ns=self.recompute_ns,
            wasted_ns=self.wasted_ns,
            kv_block_seconds=kv_block_seconds,
            method=METHOD if total_ns else "",
            confidence=self._sure_ns / total_ns if total_ns else None,
        )
