"""Detects an engine that became slower, by comparing its steps with a prediction from its own first steps.

The engine's step model for metering is refitted, so it would adapt to a slow GPU. Here a reference is fitted once to
the first steps after warm-up, and only kinds of steps in that sample are compared. The engine is slow if the median of
measured over predicted time exceeds the limit in several consecutive windows, so that outliers and bursts do not count.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from algorithms.gpu_time.step_model import StepComposition, StepModel, StepRow, compose
from algorithms.gpu_time.step_samples import Regime, StepSample, regime
from contracts.recording.records import StepRecord

REFERENCE_STEPS: Final = 512
WINDOW_STEPS: Final = 64
WINDOWS: Final = 3
_KNOWN_STEPS: Final = 8  # samples of a regime that the reference needs to judge it


@dataclass(slots=True)
class Pace:
    """Compares one engine's steps with its reference. From the ratio `limit` on it is slow; 0 disables the check."""

    limit: float = 2.0
    reference_steps: int = REFERENCE_STEPS
    window_steps: int = WINDOW_STEPS
    windows: int = WINDOWS
    _samples: list[StepSample] = field(default_factory=list)
    _reference: StepModel | None = None
    _known: frozenset[Regime] = frozenset()
    _window: list[float] = field(default_factory=list)
    _ratios: deque[float] = field(default_factory=deque)

    @property
    def has_reference(self) -> bool:
        """Return whether there is a reference to compare with."""
        return self._reference is not None

    @property
    def ratio(self) -> float | None:
        """Return measured over predicted time in the last window; `None` before the first window."""
        return self._ratios[-1] if self._ratios else None

    @property
    def is_slow(self) -> bool:
        """Return whether all of the last windows were slower than the limit."""
        return self.limit > 0 and len(self._ratios) == self.windows and all(one > self.limit for one in self._ratios)

    def see(self, records: Sequence[StepRecord]) -> None:
        """Add step records. Records without request rows are ignored, and so are those of CPUs, which other processes
        use.
        """
        for record in records:
            sample = _sample(record)
            if sample is None:
                continue
            if self._reference is not None:
                self._judge(sample, self._reference)
            elif len(self._samples) < self.reference_steps:
                self._samples.append(sample)

    @property
    def samples(self) -> list[StepSample]:
        """Return the first steps, if there are enough for a reference and none is set; else nothing."""
        is_enough = self._reference is None and len(self._samples) >= self.reference_steps
        return list(self._samples) if is_enough else []

    def adopt(self, reference: StepModel) -> None:
        """Set the reference, a model that the caller fitted to `samples`."""
        seen = Counter(regime(sample.step) for sample in self._samples)
        self._known = frozenset(one for one, count in seen.items() if count >= _KNOWN_STEPS)
        self._reference = reference
        self._samples = []

    def forget(self) -> None:
        """Clear the measured windows, for example after a pause; the reference stays."""
        self._window.clear()
        self._ratios.clear()

    def _judge(self, sample: StepSample, reference: StepModel) -> None:
        foretold_ns = reference.predict_composition_ns(sample.step)
        if foretold_ns <= 0 or regime(sample.step) not in self._known:
            return
        self._window.append(sample.busy_ns / foretold_ns)
        if len(self._window) >= self.window_steps:
            self._ratios.append(median(self._window))
            while len(self._ratios) > self.windows:
                self._ratios.popleft()
            self._window.clear()


def _sample(record: StepRecord) -> StepSample | None:
    if (
        record.kind != "step"
        or not record.scheduled
        or record.devices in ([], ["cpu"])
        or len(record.context) not in (0, len(record.scheduled))
    ):
        return None
    context = record.context or [0] * len(record.scheduled)
    if max(record.scheduled) == 1:  # most steps; the same as `compose`, without creating a row for each request
        count = len(record.scheduled)
        step = StepComposition(tokens=count, requests=count, logits=count, reads=sum(context) + count)
        return StepSample(busy_ns=record.busy_ns, step=step) if min(record.scheduled) == 1 else None
    rows = [StepRow(scheduled, before) for scheduled, before in zip(record.scheduled, context, strict=True)]
    return StepSample(busy_ns=record.busy_ns, step=compose(rows))
