"""Measured steps that a fit may use: a bounded window per regime, so that a rare regime is not forgotten.

An engine spends most steps in steady decode; a plain window would hold nothing else and say nothing about the next
long prompt. So steps are kept by regime, the latest few of each.
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
    """One measured step: how long it was busy (ns), what was in it, and its place in the engine's life."""

    busy_ns: int
    step: StepComposition
    sequence: int = 0

    @property
    def is_usable(self) -> bool:
        """Return whether it teaches anything: something was scheduled and took time."""
        return self.step.requests > 0 and self.busy_ns > 0


def regime(step: StepComposition) -> Regime:
    """Name a step's regime: powers of two of tokens and requests, of four of the keys read, and whether chunked."""
    return (step.tokens.bit_length(), step.requests.bit_length(), step.reads.bit_length() // 2, bool(step.chunks))


class SampleWindow:
    """The latest steps of each regime; the regime unseen for longest goes when there are too many."""

    def __init__(self, per_regime: int = PER_REGIME, max_regimes: int = MAX_REGIMES) -> None:
        self._per_regime = per_regime
        self._max_regimes = max_regimes
        self._regimes: OrderedDict[Regime, deque[StepSample]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._regimes.values()))

    def add(self, sample: StepSample) -> None:
        """Keep a step; one that teaches nothing is left out."""
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
        """Keep several, the oldest first."""
        for sample in samples:
            self.add(sample)

    def forget_before(self, sequence: int) -> None:
        """Drop every step older than this one: what they say of the engine no longer holds."""
        for name in list(self._regimes):
            kept = deque((one for one in self._regimes[name] if one.sequence >= sequence), maxlen=self._per_regime)
            if kept:
                self._regimes[name] = kept
            else:
                del self._regimes[name]

    def samples(self) -> list[StepSample]:
        """Return all that is kept, regime by regime."""
        return [sample for kept in self._regimes.values() for sample in kept]
