"""Classifies prompts for routes, within a time limit, and keeps what each route's examples teach."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from backends.embedder.base import MOST_TOKENS, Embedder, Embedding
from backends.processes.running_time import RunningTimeout
from contracts.api.requests import AnyRequest
from contracts.errors import EmbedderUnavailable
from contracts.serving.routes import RouteSpec
from contracts.serving.semantic import ReadingState, SemanticReading, SemanticSpec
from gateway.routing.semantic.learning import READ_TOKENS, learn
from gateway.routing.semantic.prompt_text import prompt_text

if TYPE_CHECKING:
    from gateway.routing.semantic.trained_classifiers import TrainedClassifiers

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 5.0

_NO_TEXT: Final = SemanticReading("no_text")
_LOADING: Final = SemanticReading("loading")
_LATE: Final = SemanticReading("late")
_UNAVAILABLE: Final = SemanticReading("unavailable")


class PromptEmbedder(Embedder, Protocol):
    """An embedder that refuses at once if it would not finish in time."""

    @property
    def fault(self) -> str:
        """Return why it does not run; empty if it runs, or has not been used yet."""

    async def embed(
        self, text: str, owner: str, most_tokens: int = MOST_TOKENS, within_seconds: float | None = None
    ) -> Embedding:
        """Embed one text. Raises EmbedderUnavailable, with code `embedder_busy` if it would be too late."""


class SemanticReader:
    """Classifies prompts by intent and complexity, by the examples of routes."""

    def __init__(self, embedder: PromptEmbedder, timeout_seconds: float) -> None:
        self._embedder = embedder
        self._timeout_seconds = timeout_seconds
        self._classifiers: dict[str, TrainedClassifiers] = {}  # by route; kept until the route's next one is trained
        self._learning: dict[str, tuple[SemanticSpec, asyncio.Task[None]]] = {}
        self.readings: Counter[tuple[str, ReadingState]] = Counter()  # by route and result

    async def read(self, route_id: str, spec: SemanticSpec, request: AnyRequest, tenant: str) -> SemanticReading:
        """Classify a request's prompt. Never raises; a prompt that cannot be classified in time goes to the default."""
        return await self.read_text(route_id, spec, prompt_text(request), tenant)

    async def read_text(self, route_id: str, spec: SemanticSpec, text: str, tenant: str) -> SemanticReading:
        """Classify a text as `read` does."""
        reading = await self._reading(route_id, spec, text, tenant)
        self.readings[route_id, reading.state] += 1
        return reading

    async def _reading(self, route_id: str, spec: SemanticSpec, text: str, tenant: str) -> SemanticReading:
        if not text:
            return _NO_TEXT
        classifiers = self._classifiers.get(route_id)
        if classifiers is None:
            self._learn(route_id, spec)
            return _UNAVAILABLE if self._embedder.fault else _LOADING
        try:
            async with RunningTimeout(self._timeout_seconds):
                embedding = await self._embedder.embed(text, tenant, READ_TOKENS, self._timeout_seconds)
        except TimeoutError:
            return _LATE
        except EmbedderUnavailable as error:
            return _LATE if error.error_code == "embedder_busy" else _UNAVAILABLE
        try:
            return classifiers.read(text, embedding)
        except Exception:  # a prompt's unusual text must not fail its request: the default answers it
            _log.exception("prompt cannot be classified", extra={"route": route_id})
            return _UNAVAILABLE

    def sync(self, routes: Mapping[str, RouteSpec]) -> None:
        """Train new or changed routes, and forget removed ones."""
        wanted = {name: route.semantic for name, route in routes.items() if route.semantic is not None}
        for name in [name for name in self._classifiers if name not in wanted]:
            del self._classifiers[name]
        for name, state in [key for key in self.readings if key[0] not in wanted]:
            del self.readings[name, state]
        for name in [name for name, (spec, _) in self._learning.items() if wanted.get(name) != spec]:
            self._learning.pop(name)[1].cancel()
        for name, spec in wanted.items():
            known = self._classifiers.get(name)
            if known is None or known.spec != spec:
                self._learn(name, spec)

    async def close(self) -> None:
        """Stop training."""
        tasks = [task for _, task in self._learning.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self) -> dict[str, object]:
        """Return for each route whether it classifies, and its accuracy by cross-validation."""
        found: dict[str, object] = {name: _standing(classifiers) for name, classifiers in self._classifiers.items()}
        for name in self._learning:
            found.setdefault(name, {"state": "unavailable" if self._embedder.fault else "loading"})
        return found

    @property
    def fault(self) -> str:
        """Return why routes that should classify cannot; empty if they can, or none should."""
        return self._embedder.fault if self._classifiers or self._learning else ""

    def _learn(self, name: str, spec: SemanticSpec) -> None:
        if name not in self._learning:
            task = asyncio.get_running_loop().create_task(self._keep_learning(name, spec), name=f"learn {name}")
            self._learning[name] = (spec, task)

    async def _keep_learning(self, name: str, spec: SemanticSpec) -> None:
        """Train, and retry while the embedder is unavailable."""
        while True:
            try:
                classifiers = await learn(spec, self._embedder)
                break
            except (EmbedderUnavailable, ImportError) as error:
                reason = error.message if isinstance(error, EmbedderUnavailable) else str(error)
                _log.warning("semantic route cannot be trained yet", extra={"route": name, "reason": reason})
            await asyncio.sleep(_AGAIN_SECONDS)
        self._classifiers[name] = classifiers
        del self._learning[name]
        _log.info("route learned", extra={"route": name, **_standing(classifiers)})


def _standing(classifiers: "TrainedClassifiers") -> dict[str, object]:
    found: dict[str, object] = {"state": "ready"}
    intents, complexity = classifiers.report.intents, classifiers.report.complexity
    if intents is not None:
        found["threshold"] = None if intents.calibrated is None else round(intents.calibrated, 4)
        found["accuracy"], found["abstention"] = _rounded(intents.held_out.accuracy, intents.held_out.abstention)
    if complexity is not None:
        found["complexity_threshold"] = round(complexity.threshold, 4)
        (found["complexity_accuracy"],) = _rounded(complexity.held_out.accuracy)
    return found


def _rounded(*values: float | None) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
