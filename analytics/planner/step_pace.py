"""Fits step times for a simulation: a model with the right total, and the variation of single steps.

The fit is robust, so it follows most steps. But queueing delay depends on the total, which rare slow steps increase,
and the highest percentiles on these steps. So the model is scaled to the measured total, and the variation is stored
as ratios of measured to predicted times, separately for steps with a prompt, which determine time to first token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_model import StepModel
from algorithms.gpu_time.step_samples import PER_REGIME, SampleWindow, StepSample

RATIOS: Final = 64  # equally likely; each is the mean of its part, so that the total is right
LEAST: Final = 32  # minimum number of steps of a kind: of fewer, slow ones are chance


@dataclass(frozen=True, slots=True)
class Pace:
    """A model of step times and its ratios of measured to predicted time by kind of step (none for kinds with too few
    steps).
    """

    steps: StepModel
    prompt_ratios: tuple[float, ...] = ()
    decode_ratios: tuple[float, ...] = ()


def paced(samples: Sequence[StepSample], *, earlier: Sequence[StepSample] = (), per_regime: int = PER_REGIME) -> Pace:
    """Fit the latest `per_regime` samples of each regime, and scale to the total time of all; oldest sample first.

    `earlier` samples are used for the fit only, not for the total.
    """
    window = SampleWindow(per_regime)
    window.extend(earlier)
    window.extend(samples)
    fitted = fit(window.samples())
    usable = [sample for sample in samples if sample.is_usable]
    predicted_ns = [fitted.predict_composition_ns(sample.step) for sample in usable]
    if not usable or sum(predicted_ns) <= 0:
        return Pace(fitted)
    scale = sum(sample.busy_ns for sample in usable) / sum(predicted_ns)
    kinds: tuple[list[tuple[float, float]], ...] = ([], [])
    for sample, each_ns in zip(usable, predicted_ns, strict=True):
        if each_ns > 0:
            kinds[not sample.step.chunks].append((sample.busy_ns / (each_ns * scale), each_ns * scale))
    model = fitted.scaled(scale)
    if min(map(len, kinds)) < LEAST:
        return Pace(model)
    return Pace(model, *map(_parts, kinds))


def _parts(weighted: list[tuple[float, float]]) -> tuple[float, ...]:
    """Split sorted ratios into parts of equal weight, and return each part's mean.

    A ratio's weight is its step's predicted time, so that the total time is right.
    """
    weighted.sort()
    size = sum(weight for _, weight in weighted) / RATIOS
    found: list[float] = []
    sum_of, room = 0.0, size
    for ratio, weight in weighted:
        while weight > room and len(found) < RATIOS - 1:
            found.append((sum_of + ratio * room) / size)
            weight -= room
            sum_of, room = 0.0, size
        sum_of += ratio * weight
        room -= weight
    found.append(sum_of / max(size - room, 1e-9))
    return tuple(found)
