"""Converts embedding inputs to token ids. Unsupported fields are refused by name."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backends.llm.parameters import IDLE, fields_of, refuse_all_but
from contracts.api.embedding import EmbeddingRequest
from contracts.engine.wire import ModelHello
from contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from backends.tokenization.tokenizer import (
        PromptFormat,  # loads libraries that only gateways with engine hosts need
    )

# Text up to this length is encoded in about 1 ms; longer text in a thread, so that other streams continue.
LONG_CHARACTERS: Final = 4096

# Longer texts are refused by length: WordPiece makes one token of a word of any length, after reading all of it.
MAX_TOKEN_CHARACTERS: Final = 256

_HONOURED: Final = IDLE.union(EmbeddingRequest.__struct_fields__)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs to embed, as token ids. `pairs` are the index pairs whose similarity is wanted, if any."""

    token_ids: list[list[int]]
    pairs: list[tuple[int, int]] | None = None

    @property
    def tokens(self) -> int:
        """Return the total number of tokens."""
        return sum(map(len, self.token_ids))


async def encode_entries(
    entries: Sequence[str | list[int]], field: str, model: ModelHello, name: str, form: "PromptFormat"
) -> list[list[int]]:
    """Encode the texts among `entries` with the model's special tokens; token ids are returned unchanged.

    `field` is their field in the request, `name` the model's name in it. Raises InvalidRequest for a text that cannot
    fit the model's context, before encoding it.
    """
    texts = [one for one in entries if isinstance(one, str)]
    if sum(map(len, texts)) <= LONG_CHARACTERS:
        encoded = iter(form.encode_inputs(texts))
    else:
        places = [f"{field}[{place}]" if len(entries) > 1 else field for place, _ in enumerate(entries)]
        await asyncio.to_thread(refuse_too_long, zip(places, entries, strict=True), model, name, form)
        encoded = iter(await asyncio.to_thread(form.encode_inputs, texts))
    return [next(encoded) if isinstance(one, str) else one for one in entries]


def refuse_too_long(
    entries: Iterable[tuple[str, str | list[int]]], model: ModelHello, name: str, form: "PromptFormat"
) -> None:
    """Raise InvalidRequest, with its position, for a text that cannot fit the model's context."""
    for where, text in entries:
        if not isinstance(text, str) or not model.context_tokens:
            continue
        most = model.context_tokens * MAX_TOKEN_CHARACTERS
        if len(text) > most:
            raise InvalidRequest(
                f"{where} has {len(text)} characters; {name!r} takes at most {most}, {MAX_TOKEN_CHARACTERS} for each "
                f"of its {model.context_tokens} tokens",
                param=where.partition("[")[0],
                code="context_length_exceeded",
            )
        if form.is_too_long(text, model.context_tokens):
            raise InvalidRequest(
                f"{where} has more than {model.context_tokens} tokens; {name!r} takes at most {model.context_tokens}",
                param=where.partition("[")[0],
                code="context_length_exceeded",
            )


async def inputs_of(request: EmbeddingRequest, body: bytes, model: ModelHello, form: "PromptFormat") -> Inputs:
    """Encode the inputs of an embedding request. Raises InvalidRequest with the unsupported field or the input at
    fault.
    """
    refuse_all_but(request.model, fields_of(body), _HONOURED)
    all_ids = await encode_entries(request.inputs, "input", model, request.model, form)
    names = [f"input[{place}]" for place in range(len(all_ids))] if len(all_ids) > 1 else ["input"]
    check_inputs(request.model, names, all_ids, model)
    if request.dimensions is not None and model.dimensions and request.dimensions > model.dimensions:
        raise InvalidRequest(
            f"dimensions is {request.dimensions}; {request.model!r} has {model.dimensions}", param="dimensions"
        )
    return Inputs(all_ids)


def check_inputs(name: str, places: Sequence[str], all_ids: Sequence[list[int]], model: ModelHello) -> None:
    """Raise InvalidRequest if an input is empty or too long, or if the model does not embed.

    `name` is the model's name in the request, `places` the position of each input.
    """
    if model.kind != "embed":
        raise InvalidRequest(f"the model {name!r} chats; it does not embed", param="model")
    for where, ids in zip(places, all_ids, strict=True):
        field = where.partition("[")[0]
        if not ids:
            raise InvalidRequest(f"{where} is empty", param=field)
        if model.context_tokens and len(ids) > model.context_tokens:
            raise InvalidRequest(
                f"{where} has {len(ids)} tokens; {name!r} takes at most {model.context_tokens}",
                param=field,
                code="context_length_exceeded",
            )
