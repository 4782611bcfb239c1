"""Tokens per word of a model, measured with two requests."""

from dataclasses import dataclass
from typing import Final

FEW_WORDS: Final = 8
MANY_WORDS: Final = 264  # a few hundred of our words have their mean length within one percent


@dataclass(frozen=True, slots=True)
class TokenRate:
    """Tokens of a prompt: a fixed part (the chat template, a directive) and the given number of a word."""

    tokens_per_word: float = 1.0
    fixed_tokens: float = 0.0

    @classmethod
    def measured(cls, few: int | None, many: int | None) -> "TokenRate":
        """Accept it from the input tokens reported for 8 and for 264 words. Not reported: a token a word."""
        if few is None or many is None or many <= few:
            return cls()
        rate = (many - few) / (MANY_WORDS - FEW_WORDS)
        return cls(rate, max(0.0, few - rate * FEW_WORDS))

    def words_for(self, tokens: int) -> int:
        """Return the number of words that make about this many tokens; at least one."""
        return max(1, round((tokens - self.fixed_tokens) / self.tokens_per_word))
