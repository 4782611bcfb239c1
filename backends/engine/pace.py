"""Detects an engine that became slower: compares its steps with a prediction from its own first steps.

An engine's fitted step model follows its measurements, so it also follows a slow GPU: a reference is fitted to the
first steps after warm-up and never again. Only kinds of steps that it was fitted to are compared. The criterion is the
median of measured over predicted, which a few outliers do not change, in several consecutive windows, which a burst
does not fill.
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
_KNOWN_STEPS: Final = 8  # of a regime, for the reference to speak of it


@dataclass(slots=True)
class Pace:
    """Follows one engine. `limit` is the ratio to its reference from which it is slow; 0 disables the check."""

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
        """Return whether anything can be judged yet."""
        return self._reference is not None

    @property
    def ratio(self) -> float | None:
        """Return how many times slower than foretold the last window was; `None` before there was one."""
        return self._ratios[-1] if self._ratios else None

    @property
    def is_slow(self) -> bool:
        """Return whether every one of the last windows was slower than the limit."""
        return self.limit > 0 and len(self._ratios) == self.windows and all(one > self.limit for one in self._ratios)

    def see(self, records: Sequence[StepRecord]) -> None:
        """Record step records. Those without their requests' rows are ignored, and so are a CPU's, which others use."""
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
        """Return the first steps once there are enough for a reference and none is set; else nothing."""
        is_enough = self._reference is None and len(self._samples) >= self.reference_steps
        return list(self._samples) if is_enough else []

    def adopt(self, reference: StepModel) -> None:
        """Compare later steps with a model fitted to `samples`; the caller fits it, because that takes long."""
        seen = Counter(regime(sample.step) for sample in self._samples)
        self._known = frozenset(one for one, count in seen.items() if count >= _KNOWN_STEPS)
        self._reference = reference
        self._samples = []

    def forget(self) -> None:
        """Start the comparison again with the same reference, for example after a pause."""
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
    if max(record.scheduled) == 1:  # nearly every step: what `compose` gives, without a row for each request
        count = len(record.scheduled)
        step = StepComposition(tokens=count, requests=count, logits=count, reads=sum(context) + count)
        return StepSample(busy_ns=record.busy_ns, step=step) if min(record.scheduled) == 1 else None
    rows = [StepRow(scheduled, before) for scheduled, before in zip(record.scheduled, context, strict=True)]
    return StepSample(busy_ns=record.busy_ns, step=compose(rows))
