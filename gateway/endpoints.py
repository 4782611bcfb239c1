"""Which path is answered by what: what a model answers through the dispatcher, the rest at once."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Final
from urllib.parse import unquote

import msgspec

from contracts.configuration import KeyEntry, Snapshot
from contracts.errors import MethodNotAllowed, NotFound, TollkeeperError, UnknownModel
from gateway.directory import Directory
from gateway.dispatch import Dispatcher
from gateway.exchange import Exchange
from gateway.identity.authentication import Authenticator
from gateway.metrics.endpoint import PATH as METRICS
from gateway.metrics.endpoint import MetricsEndpoint
from gateway.operations import CHAT, COMPLETIONS, EMBEDDINGS
from gateway.rendering import model_list, model_object
from gateway.reply import JSON, send_error

_log = logging.getLogger(__name__)

_MODELS: Final = "/v1/models"
_OPERATIONS: Final = {f"/v1{operation.path}": operation for operation in (CHAT, COMPLETIONS, EMBEDDINGS)}
_METHODS: Final = dict.fromkeys(_OPERATIONS, "POST") | dict.fromkeys((_MODELS, METRICS, "/health", "/ready"), "GET")


class Endpoints:
    """The data plane's paths."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        directory: Directory,
        authenticator: Authenticator,
        health: Callable[[], dict[str, object]],
        metrics: MetricsEndpoint | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._directory = directory
        self._authenticator = authenticator
        self._health = health
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, exchange: Exchange) -> asyncio.Task[None] | None:
        """Answer an exchange; what goes to a model runs in the task that is returned."""
        operation = _OPERATIONS.get(exchange.path)
        if operation is not None and exchange.method == "POST":
            return self._start(self._dispatcher.serve(exchange, operation))
        task: asyncio.Task[None] | None = None
        with _errors_as_answers(exchange):
            task = self._answer_now(exchange)
        return task

    async def settled(self) -> None:
        """Wait for every request under way, including those whose client has left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer_now(self, exchange: Exchange) -> asyncio.Task[None] | None:
        """Answer at once, or in the task that is given: where a token must be verified first."""
        path, method = exchange.path, exchange.method
        expected = _method_of(path)
        if not expected or (path == METRICS and self._metrics is None):
            raise NotFound(f"there is no {path[:100]!r} here; see the list of endpoints in the documentation")
        if method != expected and (method, expected) != ("HEAD", "GET"):
            raise MethodNotAllowed(f"{path[:100]} answers {expected}, not {method}")
        if path == "/health":
            exchange.send(200, JSON, b'{"status":"ok"}')
        elif path == "/ready":
            state = self._health()
            exchange.send(200 if state["status"] == "ready" else 503, JSON, msgspec.json.encode(state))
        elif path == METRICS and self._metrics is not None:
            self._metrics.check(exchange)
            return self._start(self._metrics.answer(exchange))
        else:
            snapshot = self._directory.snapshot
            key = self._authenticator.recognise(exchange, snapshot)
            if key is None:
                return self._start(self._verify_and_answer_models(exchange, snapshot))
            self._answer_models(exchange, key, snapshot)
        return None

    async def _verify_and_answer_models(self, exchange: Exchange, snapshot: Snapshot) -> None:
        with _errors_as_answers(exchange):
            key = await self._authenticator.verify(exchange, snapshot)
            self._answer_models(exchange, key, snapshot)

    def _answer_models(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        visible = {name: model for name, model in snapshot.models.items() if key.models is None or name in key.models}
        if exchange.path == _MODELS:
            exchange.send(200, JSON, model_list([(name, model.created_unix) for name, model in visible.items()]))
            return
        name = unquote(exchange.path.removeprefix(_MODELS + "/"))  # SDKs write the slash in a name as %2F
        if name not in visible:
            raise UnknownModel(f"the model {name[:80]!r} does not exist or is not for this key", param="model")
        exchange.send(200, JSON, model_object(name, visible[name].created_unix))


@contextlib.contextmanager
def _errors_as_answers(exchange: Exchange) -> Iterator[None]:
    try:
        yield
    except MethodNotAllowed as error:
        send_error(exchange, error, ((b"allow", _method_of(exchange.path).encode()),))
    except TollkeeperError as error:
        send_error(exchange, error)
    except Exception:  # the edge of the data plane: without an answer the connection would hang for ever
        _log.exception("request failed by a fault of the gateway", extra={"path": exchange.path[:100]})
        send_error(exchange, TollkeeperError("the gateway failed; its log says why"))


def _method_of(path: str) -> str:
    return "GET" if path.startswith(_MODELS + "/") else _METHODS.get(path, "")
