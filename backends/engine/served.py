"""The host's interface to a served model, for generation and for embedding."""

import asyncio
from typing import Protocol

from backends.engine.base import Facts, ModelOrder
from contracts.engine.wire import ModelHello, ModelState


class Served(Protocol):
    """What the threads for generating and for embedding have in common."""

    @property
    def order(self) -> ModelOrder:
        """Return the model order."""

    @property
    def closed(self) -> "asyncio.Future[None]":
        """Be done when the model's memory is free."""

    @property
    def hello(self) -> ModelHello:
        """Describe the model and its state now."""

    @property
    def state(self) -> ModelState:
        """Return the state now."""

    @property
    def failure(self) -> str:
        """Return why the state is failed."""

    def start(self) -> None:
        """Start to load."""

    def set_state(self, state: ModelState, failure: str = "") -> None:
        """Change the model's reported state."""

    def abort(self, request_id: bytes) -> None:
        """End a request."""

    def stalled_ns(self) -> int:
        """Return how long what it computes has been running."""

    def health(self) -> Facts:
        """Return how it is, without asking the model."""

    def close(self) -> None:
        """Stop."""
