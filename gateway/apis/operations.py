"""Operations of the data plane: how each one's body is parsed, and which kind of reply it has."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from contracts.api.chat import ChatRequest
from contracts.api.completion import CompletionRequest
from contracts.api.embedding import EmbeddingRequest
from contracts.api.requests import AnyRequest
from contracts.api.rerank import RerankRequest, ScoreRequest
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.media import media_reply, read_image, read_moderation, read_speech, read_transcription
from gateway.apis.native.reading import NativeReading
from gateway.apis.reading import read_chat, read_completion, read_embedding, read_rerank, read_score
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape
from gateway.limits.headers import OwnNames
from gateway.replies.completion_reply import CompletionReply
from gateway.replies.embedding_reply import EmbeddingReply
from gateway.replies.reply import ChatReply, Reply, ReplyFacts
from gateway.replies.rerank_reply import RerankReply, ScoreReply
from gateway.wire.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of request. `name` is `gen_ai.operation.name`.

    `path` is its path at a target, below the API's root; `paths` are its paths at this gateway.
    """

    api: str
    name: str
    path: str
    paths: tuple[str, ...]
    read: Callable[[str, bytes], AnyRequest]  # content type, body; raises InvalidRequest
    reply: Callable[[ReplyFacts, AnyRequest], Reply]
    errors: ErrorShape = OPENAI_ERRORS
    # Looks up what a request refers to, such as an earlier answer of the same payer. Raises InvalidRequest, NotFound.
    resolve: Callable[[AnyRequest, KeyEntry], Awaitable[AnyRequest]] | None = None
    keeps: bool = False  # its answers are kept, before the client has their end: `Reply.keep`
    native: NativeReading | None = None  # how it is read for targets that speak its API themselves
    has_plans: bool = False  # its requests of one key for one model may have a plan
    limit_names: OwnNames | None = None  # of the limits in its answers' heads, beside OpenAI's

    def reader(self, exchange: Exchange, snapshot: Snapshot) -> Callable[[str, bytes], AnyRequest]:
        """Return the reader of a request, depending on the targets that may answer."""
        return self.read if self.native is None else self.native.reader(exchange, snapshot)


def _chat_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, ChatRequest)
    return ChatReply(facts, request)


def _completion_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, CompletionRequest)
    return CompletionReply(facts, request)


def _rerank_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, RerankRequest)
    return RerankReply(facts, request)


def _bare_rerank_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, RerankRequest)
    return RerankReply(facts, request, shows_documents=False)


def _score_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, ScoreRequest)
    return ScoreReply(facts, request)


def _embedding_reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, EmbeddingRequest)
    return EmbeddingReply(facts, request)


CHAT: Final = Operation(
    "chat.completions", "chat", "/chat/completions", ("/v1/chat/completions",), read_chat, _chat_reply, has_plans=True
)
COMPLETIONS: Final = Operation(
    "completions", "text_completion", "/completions", ("/v1/completions",), read_completion, _completion_reply
)
EMBEDDINGS: Final = Operation(
    "embeddings", "embeddings", "/embeddings", ("/v1/embeddings",), read_embedding, _embedding_reply
)
RERANK: Final = Operation("rerank", "rerank", "/rerank", ("/v1/rerank", "/rerank"), read_rerank, _rerank_reply)
# Cohere's second version, which sends no document back.
RERANK_V2: Final = Operation("rerank", "rerank", "/rerank", ("/v2/rerank",), read_rerank, _bare_rerank_reply)
SCORE: Final = Operation("score", "score", "/score", ("/v1/score", "/score"), read_score, _score_reply)
IMAGES: Final = Operation(
    "images.generations",
    "image_generation",
    "/images/generations",
    ("/v1/images/generations",),
    read_image,
    media_reply,
)
TRANSCRIPTIONS: Final = Operation(
    "audio.transcriptions",
    "transcription",
    "/audio/transcriptions",
    ("/v1/audio/transcriptions",),
    read_transcription,
    media_reply,
)
SPEECH: Final = Operation("audio.speech", "speech", "/audio/speech", ("/v1/audio/speech",), read_speech, media_reply)
MODERATIONS: Final = Operation(
    "moderations", "moderation", "/moderations", ("/v1/moderations",), read_moderation, media_reply
)
OPERATIONS: Final = (
    *(CHAT, COMPLETIONS, EMBEDDINGS, RERANK, RERANK_V2, SCORE),
    *(IMAGES, TRANSCRIPTIONS, SPEECH, MODERATIONS),
)
