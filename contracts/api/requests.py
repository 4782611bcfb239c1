"""All kinds of requests to a model."""

from contracts.api.chat import GenerationRequest
from contracts.api.embedding import EmbeddingRequest
from contracts.api.media import MediaRequest
from contracts.api.rerank import PairRequest

AnyRequest = GenerationRequest | EmbeddingRequest | PairRequest | MediaRequest
