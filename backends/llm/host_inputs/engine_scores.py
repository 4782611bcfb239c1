"""Scores text pairs by the cosine similarity of their embeddings.

vLLM's server does the same for embedding models (its documentation, "scoring").
"""

import asyncio
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from backends.llm.host_inputs.engine_inputs import LONG_CHARACTERS, Inputs, check_inputs, refuse_too_long
from backends.llm.parameters import IDLE, fields_of, refuse_all_but, unsupported
from contracts.api.generation import Vectors
from contracts.api.rerank import Given, PairRequest, RerankRequest, ScoreRequest
from contracts.engine.wire import ModelHello
from contracts.errors import UpstreamBroken

if TYPE_CHECKING:
    from backends.tokenization.tokenizer import (
        PromptFormat,  # loads libraries that only gateways with engine hosts need
    )

_PAIRS_A_TURN: Final = 16  # pairs per turn of the event loop: 1 ms at 2048 dimensions

_HONOURED: Final = IDLE.union(RerankRequest.__struct_fields__, ScoreRequest.__struct_fields__)

_Key = tuple[str, int | None]


async def texts_of(request: PairRequest, body: bytes, model: ModelHello, form: "PromptFormat") -> Inputs:
    """Encode the texts to be scored, equal texts once.

    Raises InvalidRequest with the text that is too long or missing, or the unsupported field.
    """
    refuse_all_but(request.model, fields_of(body), _HONOURED)
    limit = request.right_limit
    left: list[_Key] = [(_text(request, 0, place, given), None) for place, given in enumerate(request.left)]
    right: list[_Key] = [(_text(request, 1, place, given), limit) for place, given in enumerate(request.right)]
    names: dict[_Key, str] = {}
    for side, keys in enumerate((left, right)):
        for place, key in enumerate(keys):
            names.setdefault(key, _name(request, side, place))
    token_ids = await _encode(names, form, model, request.model)
    check_inputs(request.model, list(names.values()), token_ids, model)
    at = {key: number for number, key in enumerate(names)}
    return Inputs(token_ids, [(at[left[one]], at[right[other]]) for one, other in request.pairs])


async def cosines(vectors: Vectors, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the cosine of each pair's vectors, -1 to 1; 0 if one has length zero. Yields to the event loop in between.

    Raises UpstreamBroken if a vector is not finite.
    """
    scores: list[float] = []
    one: tuple[float, ...] = ()
    known, length = -1, 0.0
    for number, (left, right) in enumerate(pairs, start=1):
        if left != known:
            known, one = left, _vector(vectors, left)
            length = math.hypot(*one)
        other = _vector(vectors, right)
        scores.append(_cosine(one, length, other, math.hypot(*other)))
        if number % _PAIRS_A_TURN == 0:
            await asyncio.sleep(0)
    return scores


def _cosine(one: tuple[float, ...], length: float, other: tuple[float, ...], other_length: float) -> float:
    if not (math.isfinite(length) and math.isfinite(other_length)):
        raise UpstreamBroken("the engine sent a vector that is not numbers")
    both = 2 * length * other_length
    if not both:
        return 0.0
    # By the law of cosines: `math.dist` is several times faster than a sum of products and exactly 0 for equal
    # vectors. Products instead of powers, which may be rounded differently, so that equal texts score exactly 1.
    apart = math.dist(one, other)
    cosine = (length * length + other_length * other_length - apart * apart) / both
    return max(-1.0, min(1.0, cosine))


def _vector(vectors: Vectors, place: int) -> tuple[float, ...]:
    return struct.unpack_from(f"<{vectors.dimensions}f", vectors.data, 4 * vectors.dimensions * place)


def _text(request: PairRequest, side: int, place: int, given: Given) -> str:
    text = given if isinstance(given, str) else given.text
    if text is None:
        refusal = unsupported(request.model, _name(request, side, place))
        refusal.message = f"{refusal.param} has no text; {request.model!r} takes text only"
        raise refusal
    return text


def _name(request: PairRequest, side: int, place: int) -> str:
    texts = request.right if side else request.left
    field = request.fields[side]
    return f"{field}[{place}]" if len(texts) > 1 else field


async def _encode(names: Mapping[_Key, str], form: "PromptFormat", model: ModelHello, name: str) -> list[list[int]]:
    """Encode texts, each truncated to its own token limit. Raises InvalidRequest for one that cannot fit."""
    keys = list(names)
    if sum(len(text) for text, _ in keys) <= LONG_CHARACTERS:
        return form.encode_cut(keys)
    whole = [(where, text) for (text, limit), where in names.items() if limit is None]
    await asyncio.to_thread(refuse_too_long, whole, model, name, form)
    return await asyncio.to_thread(form.encode_cut, keys)
