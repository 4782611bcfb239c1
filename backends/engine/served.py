"""The host's interface to a served model, for generation and for embedding."""

import asyncio
from typing import Protocol

from backends.engine.base import Facts, ModelOrder
from contracts.engine.wire import ModelHello, ModelState


class Served(Protocol):
    """The interface that the threads for generation and for embedding have in common."""

    @property
    def order(self) -> ModelOrder:
        """Return the order that it was loaded from."""

    @property
    def closed(self) -> "asyncio.Future[None]":
        """Return a future that is done when the model's memory is free."""

    @property
    def hello(self) -> ModelHello:
        """Return the description of the model and its current state."""

    @property
    def state(self) -> ModelState:
        """Return the current state."""

    @property
    def failure(self) -> str:
        """Return the reason for the state "failed"."""

    def start(self) -> None:
        """Start loading the model."""

    def set_state(self, state: ModelState, failure: str = "") -> None:
        """Change the model's reported state."""

    def abort(self, request_id: bytes) -> None:
        """End a request, if it is in progress."""

    def stalled_ns(self) -> int:
        """Return the time since the current step or batch started; 0 if none runs."""

    def health(self) -> Facts:
        """Return the state and timing, without asking the model."""

    def close(self) -> None:
        """Stop after the current step or batch."""
