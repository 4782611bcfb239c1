"""The models of one host, by name. A model that is loaded twice has two engines."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from backends.engine.base import EngineBuilder, ModelOrder
from backends.engine.embed_order import EMBEDDER_NAME
from backends.engine.embed_thread import EmbedOwner, EmbedThread
from backends.engine.engine_thread import EngineOwner, EngineThread
from backends.engine.served import Served
from backends.engine.settings import EngineHostSettings
from contracts.engine.wire import ModelHello
from contracts.errors import ConfigurationError, Conflict, Unavailable, UnknownModel


class Owner(EngineOwner, EmbedOwner, Protocol):
    """Callbacks for the owner of models, on its event loop."""

    engine: str  # the host's name, unique per start


class ModelSet:
    """Starts and stops models. Each load is a separate engine, numbered under the owner's name."""

    def __init__(
        self, owner: Owner, settings: EngineHostSettings, build: EngineBuilder, loading: threading.Lock
    ) -> None:
        self._owner = owner
        self._settings = settings
        self._build = build
        self._loading = loading
        self._models: dict[str, Served] = {}
        self._loads = 0

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._models.values()))

    def hellos(self) -> list[ModelHello]:
        """Return the descriptions of all models, in the order of loading."""
        return [model.hello for model in self._models.values()]

    def find(self, name: str) -> Served:
        """Return the model that serves requests for a name. Raises UnknownModel, or Unavailable while it
        cannot serve.
        """
        model = self.get(name)
        if model.state != "ready":
            reason = f": {model.failure}" if model.failure else ""
            raise Unavailable(f"model {name!r} is {model.state}{reason}; try again or use another replica")
        return model

    def get(self, name: str) -> Served:
        """Return a model in any state. Raises UnknownModel."""
        model = self._models.get(name)
        if model is None:
            known = ", ".join(self._models) or "none"
            raise UnknownModel(f"this engine host has no model {name!r}; it has: {known}", param="model")
        return model

    def load(self, order: ModelOrder) -> Served:
        """Start loading a model, or the embedder by its name. A failed one with that name is replaced.

        Raises Conflict if the name is in use.
        """
        old = self._models.get(order.name)
        if old is not None and not (old.state == "failed" and old.closed.done()):
            raise Conflict(f"model {order.name!r} is {old.state} here already; unload it first")
        if not order.name or not order.source:
            raise ConfigurationError("a model to load needs a name and a path")
        order = self._numbered(order)
        model: Served
        if order.source == EMBEDDER_NAME:
            model = EmbedThread(order, self._settings, self._owner, self._loading)
        else:
            model = EngineThread(order, self._build, self._owner)
        self._models[order.name] = model
        model.start()
        return model

    def beside(self, order: ModelOrder) -> EngineThread:
        """Return another engine for a name in use, not started; it gets no requests before `replace`."""
        return EngineThread(self._numbered(order), self._build, self._owner)

    def replace(self, old: EngineThread, new: EngineThread) -> None:
        """Send requests for a name to another engine from now on."""
        self._models[old.order.name] = new

    async def put_away(self, model: EngineThread) -> None:
        """Free an idle model's memory but keep its name: new requests wait until it is loaded again."""
        order = self._numbered(replace(model.order, died_ns=None))
        again = EngineThread(order, self._build, self._owner, known=model.hello)
        self._models[model.order.name] = again
        model.close()
        await model.closed

    def _numbered(self, order: ModelOrder) -> ModelOrder:
        self._loads += 1
        return replace(order, engine=f"{self._owner.engine}/{self._loads}")

    async def unload(self, model: Served) -> None:
        """Stop a model and wait until its memory is free."""
        model.close()
        await model.closed
        if self._models.get(model.order.name) is model:
            del self._models[model.order.name]
