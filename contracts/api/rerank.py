"""Reranking and scoring types, in the formats of vLLM, Jina and Cohere: how well one text matches another.

A request compares one text with many, or many with as many. Unknown fields stay in the body, which an upstream gets
unchanged.
"""

from typing import Any, ClassVar, Final

import msgspec

from contracts.api.chat import InputRequest, NotNegative, PositiveInt
from contracts.errors import InvalidRequest, InvalidUsage
from contracts.metering.usage import MAX_TOKENS_PER_LEAF, OpenAIUsage, Usage

MAX_TEXTS: Final = 2048  # on either side, like inputs to embed


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A text as an object. An entry without `text` holds something else, such as an image."""

    text: str | None = None


Given = str | Entry


class PairRequest(InputRequest, frozen=True, kw_only=True):
    """A request for scores of pairs: each text on the right with the one on the left, or with its counterpart there."""

    fields: ClassVar[tuple[str, str]]  # the names of the left and the right side

    @property
    def left(self) -> list[Given]:
        """Return the texts to compare: one, or as many as there are on the right."""
        return _listed(getattr(self, self.fields[0]))

    @property
    def right(self) -> list[Given]:
        """Return the texts that they are compared with."""
        return _listed(getattr(self, self.fields[1]))

    @property
    def right_limit(self) -> int | None:
        """Return how many tokens of each text on the right are used; `None`: all."""
        return None

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the indices on the left and on the right of each score's texts."""
        last = len(self.left) - 1
        return [(min(place, last), place) for place in range(len(self.right))]


class RerankRequest(PairRequest, frozen=True, kw_only=True):
    """The body of POST /v1/rerank: documents are ordered by how well they answer a query."""

    fields: ClassVar[tuple[str, str]] = ("query", "documents")
    query: Given
    documents: list[Given] | Entry
    top_n: NotNegative | None = None  # 0: all
    return_documents: bool | None = None
    max_tokens_per_doc: PositiveInt | None = None

    @property
    def right_limit(self) -> int | None:
        """Return how many tokens of each document are used; `None`: all."""
        return self.max_tokens_per_doc


class ScoreRequest(PairRequest, frozen=True, kw_only=True):
    """The body of POST /v1/score: how similar texts are, one to each of many or each to its counterpart."""

    fields: ClassVar[tuple[str, str]] = ("text_1", "text_2")
    text_1: str | list[Given] | Entry
    text_2: str | list[Given] | Entry


def _listed(given: list[Given] | Given) -> list[Given]:
    return given if isinstance(given, list) else [given]


def check_sides(request: PairRequest) -> None:
    """Verify that the two sides can be paired. Raises InvalidRequest, naming the side, its size and the limit."""
    sides = (len(request.left), len(request.right))
    for field, count in zip(request.fields, sides, strict=True):
        if not count:
            raise InvalidRequest(f"{field} is empty; send at least one text", param=field)
        if count > MAX_TEXTS:
            raise InvalidRequest(f"{field} has {count} entries; at most {MAX_TEXTS} are allowed", param=field)
    if sides[0] not in (1, sides[1]):
        one, other = request.fields
        raise InvalidRequest(
            f"{one} has {sides[0]} entries and {other} has {sides[1]}; {one} has one, or as many as {other}", param=one
        )


class BilledUnits(msgspec.Struct, frozen=True, gc=False):
    """Counts as Cohere reports them. Its search units are not tokens, and are ignored."""

    input_tokens: float | None = None
    output_tokens: float | None = None


class ReplyMeta(msgspec.Struct, frozen=True, gc=False):
    """Cohere's metadata of a reply."""

    billed_units: BilledUnits | None = None
    tokens: BilledUnits | None = None


class PairReply(msgspec.Struct, frozen=True, gc=False):
    """A complete answer of an upstream: only the fields needed for accounting. A rerank has `results`, scores are
    `data`.
    """

    results: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None
    usage: OpenAIUsage | None = None
    meta: ReplyMeta | None = None
    model: str | None = None
    system_fingerprint: str | None = None

    @property
    def reported(self) -> Usage | None:
        """Return the reported usage, `None` if there is none. Raises InvalidUsage if a value is not a token count.

        Everything billed is input: a total alone, or a total beside counts of 0, is the input. Cohere's billed count
        takes precedence over the count of what was read.
        """
        stated = self.usage
        if stated is not None and (count := _first(stated.prompt_tokens, stated.total_tokens)) is not None:
            made = stated.completion_tokens or None
            return Usage(input_text=count or (made is None and stated.total_tokens) or 0, output_text=made)
        meta = self.meta
        for units in () if meta is None else (meta.billed_units, meta.tokens):
            if units is not None and units.input_tokens is not None:
                return Usage(
                    input_text=_count(units.input_tokens), output_text=_count(units.output_tokens or 0) or None
                )
        return None


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _count(stated: float) -> int:
    if not (0 <= stated <= MAX_TOKENS_PER_LEAF and stated == int(stated)):
        raise InvalidUsage("a count of billed tokens is not a whole number within bounds")
    return int(stated)


def rerank_order(scores: list[float], top_n: int | None) -> list[int]:
    """Return the documents' indices, best first, at most `top_n`; equal ones in their original order."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return order[:top_n] if top_n else order


def shown(given: Given) -> dict[str, Any]:
    """Return a document in the form that replies show."""
    return {"text": given if isinstance(given, str) else given.text}
