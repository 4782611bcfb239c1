"""How long planned steps take: a fitted model that is right in the sum, and how far single steps are off it.

A fit is robust: it goes by what most steps take. But a queue waits for the sum, which the rare slow steps lengthen,
and who waits at the worst waits for them. So the model is scaled to the measured sum, and what is left is kept as the
ratios of measured to predicted times, apart for steps with a prompt in them: a first token waits for those above all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_model import StepModel
from algorithms.gpu_time.step_samples import PER_REGIME, SampleWindow, StepSample

RATIOS: Final = 64  # equally likely; each the mean of its part, so that none of the time is lost
LEAST: Final = 32  # steps of a kind: of fewer, the slow ones are chance


@dataclass(frozen=True, slots=True)
class Pace:
    """A model and its ratios by kind of step, none of too few. Over the measured steps they sum to what these took."""

    steps: StepModel
    prompt_ratios: tuple[float, ...] = ()
    decode_ratios: tuple[float, ...] = ()


def paced(samples: Sequence[StepSample], *, earlier: Sequence[StepSample] = (), per_regime: int = PER_REGIME) -> Pace:
    """Fit the latest the given number of samples of each regime, and scale that to the time of all; the oldest sample
    first.

    `earlier` ones are for the fit alone: what they took is not what is planned.
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
    """Cut ratios, in order, into parts of equal weight, and return each part's mean.

    A ratio weighs what its step is long by the model: the time is what has to come out, not the number of steps.
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
