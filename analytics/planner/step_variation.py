"""Random variation of simulated step times, drawn from the measured ratios to the prediction."""

import random
from collections.abc import Sequence
from typing import Final

_DRAWN: Final = 16  # steps of a run; longer runs take nearly the mean


class StepVariation:
    """Random ratios of actual to predicted step time. The same ratios and seed give the same draws."""

    __slots__ = ("_decodes", "_draw", "_mean", "_prompts")

    def __init__(self, prompts: Sequence[float], decodes: Sequence[float], seed: str) -> None:
        """Takes at least one ratio of each kind."""
        self._prompts = list(prompts)
        self._decodes = list(decodes)
        self._mean = sum(decodes) / len(decodes)
        self._draw = random.Random(seed).random

    def of_prompt_step(self) -> float:
        """Draw the ratio of one step with a prompt."""
        return self._prompts[int(self._draw() * len(self._prompts))]

    def of_run(self, steps: int) -> float:
        """Draw the mean ratio of `steps` (at least 1) consecutive decode-only steps."""
        drawn = min(steps, _DRAWN)
        total = self._mean * (steps - drawn)
        for _ in range(drawn):
            total += self._decodes[int(self._draw() * len(self._decodes))]
        return total / steps
