"""Every kind of request that goes to a model."""

from contracts.chat import GenerationRequest
from contracts.embedding import EmbeddingRequest
from contracts.rerank import PairRequest

AnyRequest = GenerationRequest | EmbeddingRequest | PairRequest
