"""Compares two answers to one prompt token by token, up to the first difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One token of an answer: its log-probability, and those of the most likely alternatives by text."""

    text: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)

    def of(self, other: str) -> float | None:
        """Return the log-probability of another token at this position; `None` if it is not among the reported ones."""
        return self.logprob if other == self.text else self.top.get(other)

    @property
    def least(self) -> float:
        """Return the lowest reported log-probability, an upper bound for unreported tokens."""
        return min(self.top.values(), default=self.logprob)


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's answer. `None`: unknown. `error` is "" if it answered."""

    text: str = ""
    error: str = ""
    finish_reason: str = ""
    tokens: Sequence[TokenScore] = ()
    output_tokens: int | None = None
    ttft_seconds: float | None = None
    duration_seconds: float | None = None
    inter_token_seconds: float | None = None  # mean over the answer
    cost_usd: float | None = None
    is_refusal: bool = False


@dataclass(frozen=True)
class Pair:
    """A prompt's number, and the answers of incumbent and candidate."""

    number: int
    incumbent: Answer
    candidate: Answer
    similarity: float | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether both have answered."""
        return not self.incumbent.error and not self.candidate.error

    @property
    def is_same(self) -> bool:
        """Return whether both answers are equal."""
        return self.incumbent.text == self.candidate.text

    @cached_property
    def shared_tokens(self) -> int:
        """Return the length of the common prefix in tokens."""
        count = 0
        for ours, theirs in zip(self.incumbent.tokens, self.candidate.tokens, strict=False):
            if ours.text != theirs.text:
                break
            count += 1
        return count

    @property
    def token_agreement(self) -> float | None:
        """Return the share of the incumbent's tokens before the first difference; `None` if tokens are not reported."""
        if not self.incumbent.tokens or not self.candidate.tokens:
            return None
        longer = max(len(self.incumbent.tokens), len(self.candidate.tokens))
        return self.shared_tokens / longer

    @property
    def logprob_drop(self) -> float | None:
        """Return by how much less likely the candidate finds the incumbent's answer, in nats per token.

        Covers the common prefix and the first different token, up to which both models have the same context. A token
        not among the candidate's reported ones counts with the lowest reported log-probability, so the result is a
        lower bound of the drop. `None` if log-probabilities are not reported.
        """
        if not self.incumbent.tokens or not self.candidate.tokens:
            return None
        compared = min(self.shared_tokens + 1, len(self.incumbent.tokens), len(self.candidate.tokens))
        drops: list[float] = []
        for ours, theirs in zip(self.incumbent.tokens[:compared], self.candidate.tokens[:compared], strict=True):
            found = theirs.of(ours.text)
            drops.append(ours.logprob - (theirs.least if found is None else found))
        return sum(drops) / len(drops)
