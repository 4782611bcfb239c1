"""The answers to rerank and score requests: scores rendered as vLLM and Cohere do, or an upstream's body."""

from abc import ABC, abstractmethod
from typing import Final

import msgspec

from contracts.api.rerank import RerankRequest, ScoreRequest, rerank_order, shown
from contracts.metering.usage import Usage
from gateway.replies.progress import Progress
from gateway.replies.reply import Reply, ReplyFacts

_encode: Final = msgspec.json.Encoder().encode


class PairReply(Reply, ABC):
    """Receives the answer to one request that scores pairs of texts."""

    def __init__(self, facts: ReplyFacts) -> None:
        super().__init__(facts)
        self._scores: list[float] | None = None

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        super().begin_attempt(progress, resumes=resumes)
        self._scores = None

    def scores(self, scores: list[float]) -> None:
        """Store the scores until the request is settled."""
        self._scores = scores

    def prepare_end(self, usage: Usage) -> int:
        """Render the answer; return its size in bytes."""
        if self._body is None and self._scores is not None:
            self._body = _encode(self._rendered(self._scores, usage.input_tokens or 0))
        return super().prepare_end(usage)

    @abstractmethod
    def _rendered(self, scores: list[float], tokens: int) -> dict[str, object]: ...


class RerankReply(PairReply):
    """The sink of one rerank request. The answer has both `usage` (vLLM, Jina) and `meta` (Cohere).

    The documents are returned unless the caller declines them; `shows_documents` is the default.
    """

    def __init__(self, facts: ReplyFacts, request: RerankRequest, *, shows_documents: bool = True) -> None:
        super().__init__(facts)
        self._id = f"rerank-{facts.request_id.hex}"
        self._request = request
        wanted = request.return_documents
        self._shows_documents = shows_documents if wanted is None else wanted

    def _rendered(self, scores: list[float], tokens: int) -> dict[str, object]:
        request = self._request
        documents = request.right if self._shows_documents else None
        results: list[dict[str, object]] = []
        for place in rerank_order(scores, request.top_n):
            result: dict[str, object] = {"index": place, "relevance_score": scores[place]}
            if documents is not None:
                result["document"] = shown(documents[place])
            results.append(result)
        counts = {"input_tokens": tokens}
        return {
            "id": self._id,
            "object": "list",
            "model": request.model,
            "results": results,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "meta": {"billed_units": counts, "tokens": counts},
        }


class ScoreReply(PairReply):
    """Receives the answer to one score request."""

    def __init__(self, facts: ReplyFacts, request: ScoreRequest) -> None:
        super().__init__(facts)
        self._id = f"score-{facts.request_id.hex}"
        self._created_unix = facts.created_unix
        self._request = request

    def _rendered(self, scores: list[float], tokens: int) -> dict[str, object]:
        return {
            "id": self._id,
            "object": "list",
            "created": self._created_unix,
            "model": self._request.model,
            "data": [{"index": place, "object": "score", "score": score} for place, score in enumerate(scores)],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
