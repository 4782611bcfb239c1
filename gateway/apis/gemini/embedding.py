"""POST /v1beta/models/{model}:embedContent and :batchEmbedContents as operations of the data plane.

A target that speaks the API gets the body unchanged, any other one a request to /v1/embeddings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from contracts.api.embedding import MAX_INPUTS, EmbeddingRequest, TranslatedEmbedding
from contracts.api.gemini import BatchEmbedRequest, EmbedRequest
from contracts.api.native import GEMINI_BATCH_EMBED_PATH, GEMINI_EMBED_PATH, NativeBody
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, NotOffered, UpstreamBroken
from contracts.metering.usage import Usage
from contracts.serving.configuration import Snapshot
from gateway.apis.gemini.errors import GEMINI_ERRORS
from gateway.apis.gemini.paths import model_and_verb
from gateway.apis.gemini.reading import in_camel_case
from gateway.apis.native.reach import NativeReach
from gateway.apis.operations import EMBEDDINGS, Operation
from gateway.apis.reading import read_body, read_embedding
from gateway.apis.rendering import floats_of
from gateway.replies.embedding_reply import EmbeddingReply
from gateway.replies.progress import Progress
from gateway.replies.reply import Reply, ReplyFacts
from gateway.wire.exchange import Exchange

BATCH: Final = "batchEmbedContents"
ONE: Final = "embedContent"
_PATHS: Final = {ONE: GEMINI_EMBED_PATH, BATCH: GEMINI_BATCH_EMBED_PATH}
_reach: Final = NativeReach("gemini")
_one: Final = msgspec.json.Decoder(EmbedRequest)
_batch: Final = msgspec.json.Decoder(BatchEmbedRequest)
_encode: Final = msgspec.json.Encoder().encode


class _Vector(msgspec.Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _Vectors(msgspec.Struct, frozen=True):
    data: list[_Vector]


_vectors: Final = msgspec.json.Decoder(_Vectors)


class GeminiEmbeddingReply(EmbeddingReply):
    """Collects one answer: as sent by a target that speaks the API, or vectors that are rendered in its format."""

    def __init__(self, facts: ReplyFacts, request: EmbeddingRequest, *, is_batch: bool) -> None:
        super().__init__(facts, request)
        self._is_batch = is_batch
        self._is_native = False

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; drop what a failed one produced."""
        super().begin_attempt(progress, resumes=resumes)
        self._is_native = False

    def native(self) -> None:
        """Record that the answer is in the client's API."""
        self._is_native = True

    def whole(self, body: bytes) -> None:
        """Store an answer. Raises UpstreamBroken if its vectors are not numbers."""
        if self._is_native:
            super().whole(body)
            return
        try:
            found = sorted(_vectors.decode(body).data, key=lambda one: one.index)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise UpstreamBroken("the target sent embeddings that are no lists of numbers") from error
        super().whole(self._rendered([one.embedding for one in found]))

    def prepare_end(self, usage: Usage) -> int:
        """Render the answer and return its size in bytes."""
        if self._body is None and self._vectors is not None:
            self._body = self._rendered(floats_of(self._vectors))
        return super().prepare_end(usage)

    def _rendered(self, vectors: list[list[float]]) -> bytes:
        if self._is_batch:
            return _encode({"embeddings": [{"values": one} for one in vectors]})
        if len(vectors) != 1:
            raise UpstreamBroken(f"the target sent {len(vectors)} embeddings of one content")
        return _encode({"embedding": {"values": vectors[0]}})


class EmbedOperation(Operation):
    """The operation of both paths. The model is in the path."""

    def reader(self, exchange: Exchange, snapshot: Snapshot) -> Callable[[str, bytes], AnyRequest]:
        """Return the reader of a request at this path."""
        model, verb = model_and_verb(exchange.path)
        return partial(_read, model, verb, is_spoken=_reach.of(model, snapshot) != "none")


def _read(model: str, verb: str, content_type: str, body: bytes, *, is_spoken: bool) -> TranslatedEmbedding:
    """Read a body. Raises UnsupportedMediaType, MalformedBody, or InvalidRequest (with field, value and limit)."""
    spelled = in_camel_case(body)
    refusal: InvalidRequest | None = None
    texts: list[str] = [""]
    requests: list[EmbedRequest] = []
    try:
        requests = _requests(verb, content_type, spelled)
        texts = [_text(one, f"requests[{place}]." if verb == BATCH else "") for place, one in enumerate(requests)]
        if len({one.dimensions for one in requests}) > 1:
            raise NotOffered("outputDimensionality must be the same in all requests", param="requests")
    except InvalidRequest as error:
        if not is_spoken:
            raise
        error.__traceback__ = None
        refusal = error
    dimensions = requests[0].dimensions if requests else None
    given: str | list[str | int | list[int]] = [*texts] if verb == BATCH else texts[0]
    fields: dict[str, Any] = {"model": model, "input": given, "encoding_format": "float"}
    if dimensions is not None:
        fields["dimensions"] = dimensions
    purpose = next((found for one in requests if (found := one.purpose) is not None), None)
    return TranslatedEmbedding(
        model=model,
        input=given,
        encoding_format="float",
        dimensions=dimensions,
        embedding_body=_encode(fields),
        native=NativeBody(api="gemini", path=_PATHS[verb], body=body, refusal=refusal) if is_spoken else None,
        unless_dropped=None if purpose is None else _untold(*purpose),
    )


def _requests(verb: str, content_type: str, body: bytes) -> list[EmbedRequest]:
    """Read the requests of a body. Raises as `_read` does."""
    if verb != BATCH:
        return [read_body(_one, content_type, body, {})]
    requests = read_body(_batch, content_type, body, {}).requests
    if len(requests) > MAX_INPUTS:
        raise InvalidRequest(f"requests has {len(requests)} entries; at most {MAX_INPUTS}", param="requests")
    return requests


def _untold(field: str, value: str) -> InvalidRequest:
    return NotOffered(
        f"{field} is {value[:40]!r}, for which /v1/embeddings has no field; leave it out, or let the model's target "
        "drop it (unknown_fields: drop)",
        param=field,
    )


def _text(request: EmbedRequest, where: str) -> str:
    """Return a content's text. Raises NotOffered if it has a part of another kind."""
    for place, part in enumerate(request.content.parts):
        if part.text is None:
            name = f"{where}content.parts[{place}]"
            raise NotOffered(f"{name} is not text; models at /v1/embeddings take text alone", param=name)
    text = "\n".join(part.text or "" for part in request.content.parts)
    if not text:
        raise InvalidRequest(f"{where}content is empty; give a part with text", param=f"{where}content")
    return text


def _reply(is_batch: bool, facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, EmbeddingRequest)
    return GeminiEmbeddingReply(facts, request, is_batch=is_batch)


def _operation(verb: str) -> EmbedOperation:
    return EmbedOperation(
        "generate_content",
        EMBEDDINGS.name,
        EMBEDDINGS.path,
        (),
        read_embedding,  # of a body that a guardrail has changed, which is that of /v1/embeddings
        partial(_reply, verb == BATCH),
        GEMINI_ERRORS,
    )


EMBED_CONTENT: Final = _operation(ONE)
BATCH_EMBED_CONTENTS: Final = _operation(BATCH)
