"""The sampling state of a sequence: parameters, past tokens and random numbers."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from contracts.engine.wire import Sampling

_GREEDY_BELOW: Final = 1e-5  # smaller temperatures would overflow
_UNIT: Final = 2.0**-53


@dataclass(slots=True)
class TokenCounts:
    """By token id: how often it is in the output, and whether it is in the prompt."""

    outputs: npt.NDArray[np.float32]
    in_prompt: npt.NDArray[np.bool_]


class SamplingState:
    """One choice's sampling state. Random numbers depend only on seed, choice and position, hence neither on the batch
    nor on preemption or continuation elsewhere.
    """

    def __init__(
        self,
        sampling: Sampling,
        *,
        index: int,
        prompt: Sequence[int],
        given: Sequence[int],
        end_ids: Sequence[int],
        vocabulary: int,
        seed: int | None = None,
    ) -> None:
        self.sampling = sampling
        self.index = index
        self.position = len(given)
        self.seed = seed if seed is not None else _seed_of(sampling)
        self.is_greedy = sampling.temperature < _GREEDY_BELOW
        self.end_ids = np.array(sorted({*end_ids, *sampling.stop_token_ids}), dtype=np.int64)
        self.bias_ids = np.array(list(sampling.logit_bias), dtype=np.int64)
        self.bias = np.array(list(sampling.logit_bias.values()), dtype=np.float32)
        self.counts: TokenCounts | None = None
        if sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0:
            self.counts = TokenCounts(np.zeros(vocabulary, np.float32), np.zeros(vocabulary, np.bool_))
            self.counts.in_prompt[np.asarray(prompt, dtype=np.int64)] = True
            np.add.at(self.counts.outputs, np.asarray(given, dtype=np.int64), 1.0)

    @property
    def masks_end(self) -> bool:
        """Return whether end tokens are not allowed yet."""
        return self.position < self.sampling.min_tokens and len(self.end_ids) > 0

    @property
    def is_plain(self) -> bool:
        """Return whether the next token is simply the most likely one."""
        return (
            self.is_greedy
            and self.sampling.logprobs is None
            and self.counts is None
            and not len(self.bias_ids)
            and not self.masks_end
        )

    def uniform(self) -> float:
        """Return the random number for the next token, in [0, 1)."""
        place = self.index.to_bytes(4, "little") + self.position.to_bytes(8, "little")
        digest = blake2b(place, key=self.seed.to_bytes(8, "little"), digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) * _UNIT

    def note(self, token_id: int) -> None:
        """Record a chosen token."""
        self.position += 1
        if self.counts is not None:
            self.counts.outputs[token_id] += 1.0


def _seed_of(sampling: Sampling) -> int:
    if sampling.seed is None:
        return int.from_bytes(os.urandom(8), "little")
    return sampling.seed & 0xFFFF_FFFF_FFFF_FFFF
