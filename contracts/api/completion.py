"""The text completion noun in OpenAI's older shape: a prompt is continued as it stands, without a chat's roles."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from contracts.api.chat import ChoiceCount, GenerationRequest
from contracts.api.token_inputs import TokenInput, count_of, entries_of

DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's API reference
MAX_TEXTS: Final = 1024  # that one request may have generated


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
        """Return the most tokens one choice may have."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """Return what is to be continued, one entry each. Raises InvalidRequest on a mixture."""
        return entries_of("prompt", self.prompt)

    @property
    def choice_count(self) -> int:
        """Return how many texts are generated, and paid for: those that `best_of` leaves out are among them."""
        return count_of(self.prompt) * max(self.n or 1, self.best_of or 1)
