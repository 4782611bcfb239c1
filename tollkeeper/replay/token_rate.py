"""Measures a model's tokens per word with two requests."""

from dataclasses import dataclass
from typing import Final

FEW_WORDS: Final = 8
MANY_WORDS: Final = 264  # a few hundred words have the mean length within one percent


@dataclass(frozen=True, slots=True)
class TokenRate:
    """A prompt's tokens: a fixed part (chat template, directive), and the number per word."""

    tokens_per_word: float = 1.0
    fixed_tokens: float = 0.0

    @classmethod
    def measured(cls, few: int | None, many: int | None) -> "TokenRate":
        """Return the rate from the input tokens of prompts with 8 and 264 words; one per word if not reported."""
        if few is None or many is None or many <= few:
            return cls()
        rate = (many - few) / (MANY_WORDS - FEW_WORDS)
        return cls(rate, max(0.0, few - rate * FEW_WORDS))

    def words_for(self, tokens: int) -> int:
        """Return the number of words for about this many tokens; at least 1."""
        return max(1, round((tokens - self.fixed_tokens) / self.tokens_per_word))
