"""Random variation of simulated step times, drawn from the measured ratios to the prediction."""

import random
from collections.abc import Sequence
from typing import Final

_DRAWN: Final = 16  # steps of a run; what more of them take is near enough to the mean


class StepLuck:
    """Draws. The same ratios and seed give the same luck."""

    __slots__ = ("_decodes", "_draw", "_mean", "_prompts")

    def __init__(self, prompts: Sequence[float], decodes: Sequence[float], seed: str) -> None:
        """Accept at least one ratio of each kind."""
        self._prompts = list(prompts)
        self._decodes = list(decodes)
        self._mean = sum(decodes) / len(decodes)
        self._draw = random.Random(seed).random

    def of_prompt_step(self) -> float:
        """Return the ratio of one step with a prompt in it."""
        return self._prompts[int(self._draw() * len(self._prompts))]

    def of_run(self, steps: int) -> float:
        """Return the mean ratio of the given number of steps in a row that decode alone, at least 1."""
        drawn = min(steps, _DRAWN)
        total = self._mean * (steps - drawn)
        for _ in range(drawn):
            total += self._decodes[int(self._draw() * len(self._decodes))]
        return total / steps
