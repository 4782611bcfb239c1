"""Keeps the step model up to date while the engine runs: collects steps, refits from time to time, detects drift.

`observe` takes microseconds and belongs into the step loop. `refit` takes tens of milliseconds and belongs into an idle
moment, or partly into a thread: call `samples()` in the loop, `fit(samples, fitter.prior, number=...)` in the thread,
and `adopt` in the loop.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

import msgspec

from algorithms.gpu_time.step_fit import MIN_SAMPLES, confidence_of, fit, relative_errors
from algorithms.gpu_time.step_model import PRIOR, StepModel, StepRow, compose
from algorithms.gpu_time.step_samples import PER_REGIME, SampleWindow, StepSample

REFIT_STEPS: Final = 512
MATERIAL_CHANGE: Final = 0.02  # mean relative change of predictions below which a new fit gets no new version

DRIFT_P90: Final = 0.10
DRIFT_WINDOW: Final = 256
DRIFT_MIN_STEPS: Final = 64
SHIFT_MEDIAN: Final = 0.05


class DriftAlarm:
    """Raised while the 90th percentile of |T - predicted| / T over the last 256 steps is above 10 %.

    Not raised before 64 steps. The percentile is a nearest rank: 26 of 256 steps must be off, so a few stalls of the
    host are no drift.
    """

    def __init__(self, window: int = DRIFT_WINDOW, min_steps: int = DRIFT_MIN_STEPS) -> None:
        self._errors: deque[float] = deque(maxlen=window)
        self._min_steps = min_steps

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, busy_ns: float, predicted_ns: float) -> None:
        """Add one step; `busy_ns` must be positive."""
        self._errors.append((busy_ns - predicted_ns) / busy_ns)

    @property
    def p90(self) -> float | None:
        """Return the 90th percentile of the relative error; `None` before enough steps."""
        if len(self._errors) < self._min_steps:
            return None
        return percentile_90(map(abs, self._errors))

    @property
    def is_raised(self) -> bool:
        """Return whether the 90th percentile is above 10 %."""
        p90 = self.p90
        return p90 is not None and p90 > DRIFT_P90

    @property
    def is_shift(self) -> bool:
        """Return whether the alarm is raised because the engine became faster or slower, instead of noisier.

        That is so if the median error is above 5 % in one direction.
        """
        return self.is_raised and abs(median(self._errors)) > SHIFT_MEDIAN

    def clear(self) -> None:
        """Remove all errors, because the model has been replaced."""
        self._errors.clear()


def percentile_90(values: Iterable[float]) -> float:
    """Return the nearest-rank 90th percentile of at least one value."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * 9 / 10) - 1]


class StepFitter:
    """One engine's step model and the samples that it is fitted to.

    `prior` may be the model of an earlier process of the engine; it is used until the first fit. Without one, the first
    steps only set the scale of a general model, and confidence is at most 0.25.
    """

    def __init__(
        self, prior: StepModel = PRIOR, *, refit_steps: int = REFIT_STEPS, per_regime: int = PER_REGIME
    ) -> None:
        self.prior = prior
        self.model = prior
        self.drift = DriftAlarm()
        self._refit_steps = refit_steps
        self._window = SampleWindow(per_regime)
        self._observed = 0
        # A handful of steps cannot improve the model of an earlier process.
        self._due_at = MIN_SAMPLES if prior.samples else MIN_SAMPLES // 4
        self._fitted_at = 0

    @property
    def next_number(self) -> int:
        """Return the number of the next version."""
        return self.model.number + 1

    @property
    def is_due(self) -> bool:
        """Return whether to refit: after 8, 32, 128 and 512 steps, then every `refit_steps`; earlier on drift.

        Drift is checked every 64 steps, and causes a refit at most every half of `refit_steps`.
        """
        if self._observed >= self._due_at:
            return True
        since = self._observed - self._fitted_at
        return since >= self._refit_steps // 2 and not self._observed % DRIFT_MIN_STEPS and self.drift.is_raised

    def observe(self, busy_ns: int, rows: Sequence[StepRow], *, is_dry: bool = False) -> None:
        """Add one measured step. Steps without scheduled tokens or time are ignored."""
        sample = StepSample(busy_ns, compose(rows, is_dry=is_dry), self._observed + 1)
        if not sample.is_usable:
            return
        self._observed += 1
        self._window.add(sample)
        if self.model.samples:  # the general prior has no meaningful scale
            self.drift.add(busy_ns, self.model.predict_composition_ns(sample.step))

    def samples(self) -> list[StepSample]:
        """Return the steps for a fit. After a shift, only those since, because the engine's speed has changed."""
        if self.drift.is_shift:
            self._window.forget_before(self._observed - len(self.drift) + 1)
        return self._window.samples()

    def refit(self) -> bool:
        """Fit to the current samples; return whether the version changed. Takes tens of milliseconds."""
        return self.adopt(fit(self.samples(), self.prior, number=self.next_number))

    def adopt(self, found: StepModel) -> bool:
        """Adopt a new fit; return whether the version changed.

        If its predictions differ by less than 2 % on average, the current coefficients and version stay, with updated
        errors and confidence: a new version is made only if it would change bills.
        """
        self._fitted_at = self._observed
        self._due_at = min(4 * max(self._observed, MIN_SAMPLES // 4), self._observed + self._refit_steps)
        samples = self._window.samples()
        if not samples or not found.samples:
            return False
        if self.model.samples >= MIN_SAMPLES and self._change(found, samples) < MATERIAL_CHANGE:
            self.model = _with_evidence(self.model, samples)
            return False
        self.model = found
        self.drift.clear()
        return True

    def _change(self, found: StepModel, samples: Sequence[StepSample]) -> float:
        changes = [
            abs(found.predict_composition_ns(one.step) / self.model.predict_composition_ns(one.step) - 1)
            for one in samples
        ]
        return sum(changes) / len(changes)


def _with_evidence(model: StepModel, samples: Sequence[StepSample]) -> StepModel:
    errors = list(map(float, relative_errors(model, samples)))
    p90 = percentile_90(errors)
    return msgspec.structs.replace(
        model,
        samples=len(samples),
        mape=sum(errors) / len(errors),
        p90_error=p90,
        confidence=confidence_of(len(samples), p90),
    )
