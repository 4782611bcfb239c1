"""`steptime-as/1`: splits a step's measured GPU time among its requests, so that the parts sum up exactly.

Pure: used by the engine host for each step; the planner and the router use the same model. Time outside of steps (idle,
host gaps, loading) is in `algorithms/gpu_time/ledger.py`, the fit of the model in `algorithms/gpu_time/step_fit.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from algorithms.gpu_time.step_model import PREFILL, StepModel, StepRow
from contracts.recording.records import GpuShare

METHOD: Final = "steptime-as/1"
_MANTISSA_BITS: Final = 53  # of a float: weights are scaled to integers of this size without losing large parts
_MAX_EXPONENT: Final = 1000


def split_exactly(total: int, weights: Sequence[float]) -> list[int]:
    """Split an integer in proportion to weights by the largest-remainder method; the parts sum to it exactly.

    Every part is within 1 of its exact share, equal weights differ by at most 1, and a weight of 0 gets 0. Units left
    over go by remainder, then by weight; position decides only among equal weights. Without a positive weight all parts
    are 0. Raises ValueError for a negative total.
    """
    if total < 0:
        raise ValueError(f"cannot split a negative amount: {total}")
    largest = max(weights, default=0.0)
    if largest <= 0 or not total:
        return [0] * len(weights)
    exponent = _MANTISSA_BITS - math.frexp(largest)[1]
    if exponent > _MAX_EXPONENT:  # weights below 1e-280, whose scale exceeds a float
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
    """The split of one step: `parts_ns` is parallel to its rows and sums to the step's busy time."""

    parts_ns: list[int]
    predicted_ns: float
    fit_version: str
    confidence: float
    method: str = METHOD


def attribute(model: StepModel, busy_ns: int, rows: Sequence[StepRow], *, is_dry: bool = False) -> Attribution:
    """Split a step's measured time among its rows in integer nanoseconds; `is_dry`: the GPU was idle before.

    A step without scheduled tokens (a dummy batch) charges no request; the ledger shows its time separately. If the
    model predicts zero for all rows, time is split by tokens. Raises ValueError for a negative count or time.
    """
    weights = model.weights(rows, is_dry=is_dry)
    predicted_ns = math.fsum(weights)  # correctly rounded, so independent of the order of rows
    if predicted_ns <= 0:
        weights = [float(row.scheduled) for row in rows]
    return Attribution(
        parts_ns=split_exactly(busy_ns, weights),
        predicted_ns=predicted_ns,
        fit_version=model.version,
        confidence=step_confidence(model.confidence, busy_ns, predicted_ns, sum(map(bool, weights))),
    )


def step_confidence(fit_confidence: float, busy_ns: float, predicted_ns: float, requests: int) -> float:
    """Return a split's confidence, 0 to 1: the fit's confidence times the ratio of predicted and measured time.

    The ratio is the smaller over the larger. A step of one request needs no model and has confidence 1.
    """
    if requests <= 1:
        return 1.0
    larger = max(busy_ns, predicted_ns)
    return fit_confidence * min(busy_ns, predicted_ns) / larger if larger > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RowTime:
    """A row's nanoseconds by purpose; the three sum to its part of the step."""

    useful_ns: int
    recompute_ns: int
    wasted_ns: int


def classify(row: StepRow, part_ns: int) -> RowTime:
    """Split a row's part into useful, recomputed and wasted time.

    For an aborted request all of it is wasted. Otherwise the recomputed share of the scheduled tokens, rounded down, is
    recompute.
    """
    if row.aborted:
        return RowTime(0, 0, part_ns)
    recompute_ns = part_ns * min(row.recompute, row.scheduled) // row.scheduled if row.scheduled else 0
    return RowTime(part_ns - recompute_ns, recompute_ns, 0)


@dataclass(slots=True)
class RequestTime:
    """The GPU time charged to one request over its steps so far."""

    prefill_ns: int = 0
    decode_ns: int = 0
    recompute_ns: int = 0
    wasted_ns: int = 0
    _sure_ns: float = field(default=0.0, repr=False)

    @property
    def total_ns(self) -> int:
        """Return the sum of all parts."""
        return self.prefill_ns + self.decode_ns + self.recompute_ns + self.wasted_ns

    def add(self, row: StepRow, part_ns: int, confidence: float) -> None:
        """Add one step's part. Encoding counts as prefill, because both precede the first token."""
        useful_ns = part_ns
        if row.aborted or row.recompute:  # a rare case; this method runs for each row of each step
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
        """Return the time as in request records; the confidence is the mean over the steps, weighted by nanoseconds."""
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
