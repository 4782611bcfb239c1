"""The answer to an embedding request: vectors in OpenAI's format, or an upstream's body unchanged."""

from contracts.api.embedding import EmbeddingRequest
from contracts.api.generation import Vectors
from contracts.metering.usage import Usage
from gateway.apis.rendering import embedding_reply
from gateway.replies.progress import Progress
from gateway.replies.reply import Reply, ReplyFacts


class EmbeddingReply(Reply):
    """Receives the answer to one embedding request."""

    def __init__(self, facts: ReplyFacts, request: EmbeddingRequest) -> None:
        super().__init__(facts)
        self._request = request
        self._vectors: Vectors | None = None

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        super().begin_attempt(progress, resumes=resumes)
        self._vectors = None

    def vectors(self, vectors: Vectors) -> None:
        """Keep the vectors until the request is settled."""
        self._vectors = vectors

    def prepare_end(self, usage: Usage) -> int:
        """Render the answer; return its size in bytes."""
        if self._body is None and self._vectors is not None:
            as_base64 = self._request.encoding_format == "base64"
            self._body = embedding_reply(self._request.model, self._vectors, usage, as_base64=as_base64)
        return super().prepare_end(usage)
