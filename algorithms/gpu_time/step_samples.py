"""Measured steps for a fit: a bounded window per regime, so that rare regimes are not lost.

An engine spends most steps in steady decode; a plain window would contain nothing else and could not predict the next
long prompt. So the latest few steps of each regime are kept.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from algorithms.gpu_time.step_model import StepComposition

PER_REGIME: Final = 64
MAX_REGIMES: Final = 48

Regime = tuple[int, int, int, bool]


@dataclass(frozen=True, slots=True)
class StepSample:
    """One measured step: its busy time (ns), its composition, and its number within the engine's process."""

    busy_ns: int
    step: StepComposition
    sequence: int = 0

    @property
    def is_usable(self) -> bool:
        """Return whether it can be used for a fit: it has scheduled tokens and a time."""
        return self.step.requests > 0 and self.busy_ns > 0


def regime(step: StepComposition) -> Regime:
    """Return a step's regime: powers of two of tokens and requests, of four of the keys read, and whether it has
    chunks.
    """
    return (step.tokens.bit_length(), step.requests.bit_length(), step.reads.bit_length() // 2, bool(step.chunks))


class SampleWindow:
    """The latest steps of each regime. If there are too many regimes, the one unseen for longest is removed."""

    def __init__(self, per_regime: int = PER_REGIME, max_regimes: int = MAX_REGIMES) -> None:
        self._per_regime = per_regime
        self._max_regimes = max_regimes
        self._regimes: OrderedDict[Regime, deque[StepSample]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._regimes.values()))

    def add(self, sample: StepSample) -> None:
        """Add a step, unless it is unusable."""
        if not sample.is_usable:
            return
        name = regime(sample.step)
        kept = self._regimes.get(name)
        if kept is None:
            if len(self._regimes) >= self._max_regimes:
                self._regimes.popitem(last=False)
            kept = self._regimes[name] = deque(maxlen=self._per_regime)
        else:
            self._regimes.move_to_end(name)
        kept.append(sample)

    def extend(self, samples: Iterable[StepSample]) -> None:
        """Add several steps, oldest first."""
        for sample in samples:
            self.add(sample)

    def forget_before(self, sequence: int) -> None:
        """Remove all steps before this number, because the engine has changed since."""
        for name in list(self._regimes):
            kept = deque((one for one in self._regimes[name] if one.sequence >= sequence), maxlen=self._per_regime)
            if kept:
                self._regimes[name] = kept
            else:
                del self._regimes[name]

    def samples(self) -> list[StepSample]:
        """Return all steps, regime by regime."""
        return [sample for kept in self._regimes.values() for sample in kept]
