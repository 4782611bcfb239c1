"""Learns from a route's examples beside the event loop: their vectors, then the classifiers."""

import asyncio
import importlib
from typing import TYPE_CHECKING, Final

from backends.embedder.base import Embedder, Embedding
from contracts.serving.semantic import SemanticSpec

if TYPE_CHECKING:
    from gateway.routing.semantic.lesson import Lesson

READ_TOKENS: Final = 128  # of a prompt or an example: twice the time of 64, and routes are told by their beginnings
_AT_ONCE: Final = 8  # examples: prompts that come meanwhile wait behind them
_NOBODY: Final = ""  # examples are the operator's, no tenant's


async def learn(spec: SemanticSpec, embedder: Embedder) -> "Lesson":
    """Return a route's lesson. Raises EmbedderUnavailable."""
    # Imported in a thread, and only where a route asks for it: NumPy takes a tenth of a second and 30 MB.
    module = await asyncio.to_thread(importlib.import_module, "gateway.routing.semantic.lesson")
    texts: tuple[str, ...] = module.example_texts(spec)
    embeddings: dict[str, Embedding] = {}
    for first in range(0, len(texts), _AT_ONCE):
        some = texts[first : first + _AT_ONCE]
        found = await asyncio.gather(*(embedder.embed(text, _NOBODY, READ_TOKENS) for text in some))
        embeddings.update(zip(some, found, strict=True))
    lesson: Lesson = await asyncio.to_thread(module.Lesson.learn, spec, embeddings)
    return lesson
