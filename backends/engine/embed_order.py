"""The order for the embedder's model, available without importing it."""

from typing import Final

from backends.engine.base import ModelOrder

EMBEDDER_NAME: Final = "minilm-l6-v2"


def embedder_order() -> ModelOrder:
    """Return the order that loads the embedder."""
    return ModelOrder(EMBEDDER_NAME, EMBEDDER_NAME)
