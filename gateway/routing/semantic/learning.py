"""Learns a route's examples off the event loop: their vectors, then the classifiers."""

import asyncio
import importlib
from typing import TYPE_CHECKING, Final

from backends.embedder.base import Embedder, Embedding
from contracts.serving.semantic import SemanticSpec

if TYPE_CHECKING:
    from gateway.routing.semantic.trained_classifiers import TrainedClassifiers

READ_TOKENS: Final = 128  # per text: takes twice the time of 64; the start of a text decides
_AT_ONCE: Final = 8  # examples: prompts that arrive meanwhile wait behind them
_NOBODY: Final = ""  # examples belong to the operator, not to a tenant


async def learn(spec: SemanticSpec, embedder: Embedder) -> "TrainedClassifiers":
    """Return a route's trained classifiers. Raises EmbedderUnavailable."""
    # Imported in a thread, and only if a route needs it: NumPy takes a tenth of a second and 30 MB.
    module = await asyncio.to_thread(importlib.import_module, "gateway.routing.semantic.trained_classifiers")
    texts: tuple[str, ...] = module.example_texts(spec)
    embeddings: dict[str, Embedding] = {}
    for first in range(0, len(texts), _AT_ONCE):
        some = texts[first : first + _AT_ONCE]
        found = await asyncio.gather(*(embedder.embed(text, _NOBODY, READ_TOKENS) for text in some))
        embeddings.update(zip(some, found, strict=True))
    classifiers: TrainedClassifiers = await asyncio.to_thread(module.TrainedClassifiers.learn, spec, embeddings)
    return classifiers
