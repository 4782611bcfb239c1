"""The text completion type in OpenAI's older format: a prompt is continued as it is, without a chat's roles.

OpenAI's older APIs accept a text, texts, token ids, or lists of token ids.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from contracts.api.chat import ChoiceCount, GenerationRequest
from contracts.errors import InvalidRequest

DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's API reference
MAX_TEXTS: Final = 1024  # maximum number of texts that one request generates
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TokenInput = str | list[str | TokenId | list[TokenId]]


def entries_of(field: str, given: TokenInput) -> list[str | list[int]]:
    """Return a field's entries, each a text or a token list. Raises InvalidRequest if token ids are mixed with other
    entries.
    """
    if isinstance(given, str):
        return [given]
    numbers = [one for one in given if isinstance(one, int)]
    if not numbers:
        return [one for one in given if not isinstance(one, int)]
    if len(numbers) < len(given):
        raise InvalidRequest(f"{field} mixes token ids with other entries; send one list for each", param=field)
    return [numbers]


def count_of(given: TokenInput) -> int:
    """Return the number of texts and token lists in a field."""
    return 1 if isinstance(given, str) or (given and isinstance(given[0], int)) else len(given)


class CompletionRequest(GenerationRequest, frozen=True):
    """The body of POST /v1/completions. `prompt` is a text, texts, token ids, or lists of token ids."""

    prompt_field: ClassVar[str] = "prompt"
    prompt: TokenInput
    best_of: ChoiceCount | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    @property
    def output_limit(self) -> int | None:
        """Return the maximum tokens of one choice."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """Return the prompts to continue, one entry each. Raises InvalidRequest if token ids are mixed with other
        entries.
        """
        return entries_of("prompt", self.prompt)

    @property
    def choice_count(self) -> int:
        """Return how many texts are generated and billed, including those that `best_of` discards."""
        return count_of(self.prompt) * max(self.n or 1, self.best_of or 1)
