"""Two answers to one prompt, and how far the second keeps to the first: token by token while they share a beginning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class TokenScore:
    """One token of an answer: its log-probability, and those of the likeliest instead of it, by their text."""

    text: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)

    def of(self, other: str) -> float | None:
        """Return the log-probability of a token in this one's place; `None` if it is below all that are told."""
        return self.logprob if other == self.text else self.top.get(other)

    @property
    def least(self) -> float:
        """Return the least that is told: what is not told is no likelier."""
        return min(self.top.values(), default=self.logprob)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model answered. `None`: not known. `error` is empty if it has answered."""

    text: str = ""
    error: str = ""
    finish_reason: str = ""
    tokens: Sequence[TokenScore] = ()
    output_tokens: int | None = None
    ttft_seconds: float | None = None
    duration_seconds: float | None = None
    inter_token_seconds: float | None = None  # the mean of its gaps
    cost_usd: float | None = None
    is_refusal: bool = False


@dataclass(frozen=True)
class Pair:
    """A prompt's number, and what incumbent and candidate answered to it."""

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
        """Return whether both said the same."""
        return self.incumbent.text == self.candidate.text

    @cached_property
    def shared_tokens(self) -> int:
        """Return how many tokens both begin with."""
        count = 0
        for ours, theirs in zip(self.incumbent.tokens, self.candidate.tokens, strict=False):
            if ours.text != theirs.text:
                break
            count += 1
        return count

    @property
    def token_agreement(self) -> float | None:
        """Return the share of the incumbent's tokens up to the first that differs; `None` if tokens are not told."""
        if not self.incumbent.tokens or not self.candidate.tokens:
            return None
        longer = max(len(self.incumbent.tokens), len(self.candidate.tokens))
        return self.shared_tokens / longer

    @property
    def logprob_drop(self) -> float | None:
        """Return by how much less likely (natural logarithm, a token) the candidate finds the incumbent's answer.

        It is told for the tokens that both begin with and for the first that differs: there both models have seen the
        same. A token that is not among the candidate's likeliest counts as the last of these, so that the drop is at
        least this. `None` if log-probabilities are not told.
        """
        if not self.incumbent.tokens or not self.candidate.tokens:
            return None
        compared = min(self.shared_tokens + 1, len(self.incumbent.tokens), len(self.candidate.tokens))
        drops: list[float] = []
        for ours, theirs in zip(self.incumbent.tokens[:compared], self.candidate.tokens[:compared], strict=True):
            found = theirs.of(ours.text)
            drops.append(ours.logprob - (theirs.least if found is None else found))
        return sum(drops) / len(drops)
