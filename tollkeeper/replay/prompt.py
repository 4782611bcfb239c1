"""Generates reproducible prompts of common words with a given length, with shared prefixes as in the trace."""

import random
from functools import lru_cache
from typing import Final

from tollkeeper.replay.token_rate import TokenRate

# Short, common words, so that a tokenizer for English has one token for each.
WORDS: Final = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were her all she there would their we him been has when who will more no if out so said what up its about "
    "into than them can only other new some could time these two may then do first any my now such like our over man "
    "me even most made after also did many before must through back years where much your way well down should because "
    "each just those people how too little state good very make world still own see men work long get here between "
    "both life being under never day same another know while last might us great old year off come since against go "
    "came right used take three"
).split()
_BLOCKS_KEPT: Final = 4096  # about 10 MB of text


class PromptWriter:
    """Generates prompts for one model. `block_tokens`: length of the prefix blocks that requests may share."""

    def __init__(self, rate: TokenRate, block_tokens: int, seed: str = "") -> None:
        self._rate = rate
        self._words_per_block = max(1, round(block_tokens / rate.tokens_per_word))
        self._seed = seed
        self._block = lru_cache(_BLOCKS_KEPT)(self._write_block)

    def write(self, number: int, input_tokens: int, prefix_blocks: tuple[int, ...] = ()) -> str:
        """Return the prompt of request `number`: its prefix blocks, then words that are unique to it."""
        left = self._rate.words_for(input_tokens)
        parts: list[str] = []
        for block in prefix_blocks:
            if left < self._words_per_block:
                break
            parts.append(self._block(block))
            left -= self._words_per_block
        if left > 0:
            parts.append(_words(f"{self._seed}/request/{number}", left))
        return " ".join(parts)

    def _write_block(self, block: int) -> str:
        # Without the seed: a block has the same text in every run, and may still be in the model's prefix cache.
        return _words(f"block/{block}", self._words_per_block)


def _words(seed: str, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))
