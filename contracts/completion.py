"""The legacy text-completion noun in OpenAI's shape."""

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.chat import Bias, ChoiceCount, Penalty, PositiveInt, Probability, Seed, StreamOptions, Temperature


class CompletionRequest(msgspec.Struct, frozen=True):
    """The body of POST /v1/completions. `prompt` is text, texts, token ids, or lists of token ids."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    prompt: str | list[str | int | list[int]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    n: ChoiceCount | None = None
    best_of: ChoiceCount | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    stop: str | list[str] | None = None
    seed: Seed | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None
