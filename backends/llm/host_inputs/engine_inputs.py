"""Convert embedding inputs to token ids. Unsupported fields are refused by name."""

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

# Text up to here is encoded in a millisecond or so; beyond it in a thread, so that other streams go on.
LONG_CHARACTERS: Final = 4096

# A text of more cannot be meant: WordPiece makes one token of a word of any length, after reading all of it.
MAX_TOKEN_CHARACTERS: Final = 256

_HONOURED: Final = IDLE.union(EmbeddingRequest.__struct_fields__)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is to be embedded, as token ids; and the places of those whose likeness is asked for, if that is."""

    token_ids: list[list[int]]
    pairs: list[tuple[int, int]] | None = None

    @property
    def tokens(self) -> int:
        """Return how many tokens they are together."""
        return sum(map(len, self.token_ids))


async def encode_entries(
    entries: Sequence[str | list[int]], field: str, model: ModelHello, name: str, form: "PromptFormat"
) -> list[list[int]]:
    """Encode the texts among the entries, each with the special tokens the model frames it with.

    `field` is where they stand, `name` the application's for the model. Raises InvalidRequest on a text that is
    certain not to fit into the model's context, before that is encoded.
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
    """Refuse a text that is certain not to fit into the model's context, or far longer than what fits.

    Raises InvalidRequest, naming its place.
    """
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
    """Encode what is to be embedded. Raises InvalidRequest, naming the field, or the input that is too long."""
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
    """Hold inputs to what a model embeds; `name` is the application's for it, `places` are where the inputs stand.

    Raises InvalidRequest, naming the input.
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
