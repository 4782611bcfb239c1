"""Map paths to operations that a model answers, and to other resources."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Final

import msgspec

from backends.network.detail_access import DetailAccess
from contracts.errors import (
    Draining,
    GatewayFault,
    MethodNotAllowed,
    NotFound,
    PermissionDenied,
    TollkeeperError,
)
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.batches.message_batches import SERVED as MESSAGE_BATCHES
from gateway.apis.gemini.models import is_google
from gateway.apis.gemini.operation import GENERATE_CONTENT, operation_at
from gateway.apis.gemini.paths import SERVED as GEMINI_SERVED
from gateway.apis.gemini.paths import is_gemini
from gateway.apis.models import models_body, models_errors
from gateway.apis.operations import OPERATIONS, Operation
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape
from gateway.apis.resource import Resource
from gateway.config.directory import Directory
from gateway.identity.authentication import Authenticator
from gateway.observability.metrics.endpoint import PATH as METRICS
from gateway.observability.metrics.endpoint import MetricsEndpoint
from gateway.replies.reply import JSON
from gateway.request.dispatch import Dispatcher
from gateway.wire.error_answer import send_error
from gateway.wire.exchange import REQUEST_ID, Exchange, Headers, Serving
from gateway.wire.public_errors import public_error

_log = logging.getLogger(__name__)

_MODELS: Final = "/v1/models"
_OTHERS: Final = ("/v1/files", "/v1/batches", "/v1/cachedContents")  # which Google's API has under the same names
_GEMINI_SERVED: Final = ", ".join(GEMINI_SERVED)
_READ: Final = frozenset((_MODELS, METRICS, "/health", "/ready"))
_DURING_DRAIN: Final = frozenset((METRICS, "/health", "/ready"))  # what is answered until the port closes
_MESSAGES: Final = "/v1/messages"
_BELOW_MESSAGES: Final = _MESSAGES + "/"
_MCP: Final = "/mcp"
_BELOW_MCP: Final = _MCP + "/"
# What other APIs have where this one has an id or a model's name: its methods would say that the path is here.
_NO_NAME: Final = re.compile(
    r"/v1/(?:responses/(?!resp_)|files/(?!file-)|batches/(?!batch_)|models/.*:(?:predict|[a-z]+[A-Z][A-Za-z]*)$)"
)
# What resources answer beside operations, below each API.
_MORE: Final = {
    _MESSAGES: ("POST /v1/messages/count_tokens", *MESSAGE_BATCHES),
    "/v1/responses": (
        "POST /v1/responses/input_tokens",
        "GET and DELETE /v1/responses/{id}",
        "GET /v1/responses/{id}/input_items",
    ),
    _MODELS: ("GET /v1/models", "GET /v1/models/{model}"),
    "/v1/files": ("GET and POST /v1/files", "GET and DELETE /v1/files/{id}", "GET /v1/files/{id}/content"),
    "/v1/batches": ("GET and POST /v1/batches", "GET /v1/batches/{id}", "POST /v1/batches/{id}/cancel"),
}
_RETRY_SECONDS: Final = 1.0  # another gateway may be asked at once; a restarted one soon


class ServingTasks:
    """The tasks that answer requests: each is tracked until its end, even after its client has disconnected."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a coroutine in a task."""
        task = asyncio.get_running_loop().create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settled(self) -> None:
        """Wait for every task in progress."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Endpoints:
    """The data plane's paths."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        tasks: ServingTasks,
        directory: Directory,
        authenticator: Authenticator,
        health: Callable[[], dict[str, object]],
        access: DetailAccess,
        metrics: MetricsEndpoint | None = None,
        operations: Sequence[Operation] = OPERATIONS,
        resources: Sequence[Resource] = (),
    ) -> None:
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._directory = directory
        self._authenticator = authenticator
        self._health = health
        self._access = access
        self._metrics = metrics
        self._operations = {path: operation for operation in operations for path in operation.paths}
        self._resources = resources
        self.is_draining = False  # the gateway is stopping: new requests are refused

    def handle(self, exchange: Exchange) -> Serving | None:
        """Answer an exchange. If it goes to a model, return the task or request state that continues it."""
        if self.is_draining:
            exchange.close_after()
            if exchange.path not in _DURING_DRAIN:
                refusal = Draining(
                    "the gateway is shutting down and accepts no new requests; send it again, to another gateway if "
                    "there is one",
                    retry_after_seconds=_RETRY_SECONDS,
                )
                send_error(exchange, refusal, _identified(exchange), self.shape_at(exchange.path))
                return None
        operation = self._operation_at(exchange.path)
        if operation is not None and exchange.method == "POST":
            return self._dispatcher.serve(exchange, operation)
        task: asyncio.Task[None] | None = None
        is_model = exchange.path == _MODELS or exchange.path.startswith(_MODELS + "/")
        is_model = (is_model and not is_gemini(exchange.path)) or is_google(exchange)
        shape = models_errors(exchange) if is_model else self.shape_at(exchange.path)
        with self._errors_as_answers(exchange, shape):
            task = self._answer_now(exchange)
        return task

    def shape_at(self, path: str) -> ErrorShape:
        """Return the error format at a path: Anthropic's below /v1/messages, else OpenAI's."""
        if is_gemini(path):
            return GENERATE_CONTENT.errors
        answered_by = self._operation_at(path) or self._resource_of(path)
        if answered_by is None and path.startswith(_BELOW_MESSAGES):
            answered_by = self._operations.get(_MESSAGES)
        if answered_by is None and path.startswith(_BELOW_MCP):
            answered_by = self._resource_of(_MCP)
        return OPENAI_ERRORS if answered_by is None else answered_by.errors

    def _answer_now(self, exchange: Exchange) -> asyncio.Task[None] | None:
        """Answer at once, or return the task that does if a token must be verified first."""
        path = exchange.path
        if is_google(exchange) and path.startswith(_OTHERS):
            raise NotFound(f"there is no {path[:100]!r} for clients of Google's API here; served are {_GEMINI_SERVED}")
        self._check_served(path, exchange.method)
        resource = self._resource_of(path)
        if resource is not None:
            return self._tasks.start(self._answer_resource(exchange, resource))
        if path == "/health":
            exchange.send(200, JSON, b'{"status":"ok"}')
        elif path == "/ready":
            self._answer_ready(exchange)
        elif path == METRICS and self._metrics is not None:
            self._metrics.check(exchange)
            return self._tasks.start(self._metrics.answer(exchange))
        else:
            snapshot = self._directory.snapshot
            key = self._authenticator.recognise(exchange, snapshot)
            if key is None:
                return self._tasks.start(self._verify_and_answer_models(exchange, snapshot))
            self._answer_models(exchange, key, snapshot)
        return None

    def _check_served(self, path: str, method: str) -> None:
        """Raise NotFound or MethodNotAllowed for a path or method that is not supported."""
        expected = self._methods_of(path)
        is_offered = method in expected or (method == "HEAD" and "GET" in expected)
        is_name = self._operation_at(path) is not None or not _NO_NAME.match(path)
        if not expected or (path == METRICS and self._metrics is None) or not (is_offered or is_name):
            raise NotFound(f"there is no {path[:100]!r} here; {self._served_near(path)}")
        if not is_offered:
            raise MethodNotAllowed(f"{path[:100]} answers {', '.join(expected)}, not {method}")

    def _answer_ready(self, exchange: Exchange) -> None:
        """Answer whether requests may be sent here; with details only for callers who may see them."""
        state = self._health()
        status = 200 if state["status"] == "ready" else 503
        names = [name.decode("latin-1") for name in exchange.headers]
        if not self._access.allows(exchange.address, names, exchange.headers.get(b"authorization", b"")):
            state = {"status": state["status"]}
        exchange.send(status, JSON, msgspec.json.encode(state))

    async def _verify_and_answer_models(self, exchange: Exchange, snapshot: Snapshot) -> None:
        with self._errors_as_answers(exchange, models_errors(exchange)):
            key = await self._authenticator.verify(exchange, snapshot)
            self._answer_models(exchange, key, snapshot)

    async def _answer_resource(self, exchange: Exchange, resource: Resource) -> None:
        with self._errors_as_answers(exchange, resource.errors):
            snapshot = self._directory.snapshot
            key = self._authenticator.recognise(exchange, snapshot)
            if key is None:
                key = await self._authenticator.verify(exchange, snapshot)
            if key.endpoints is not None and resource.endpoint not in key.endpoints:
                allowed = ", ".join(sorted(key.endpoints))
                raise PermissionDenied(f"this key may not use {resource.endpoint}; it may use {allowed}")
            await resource.answer(exchange, key, snapshot)

    def _answer_models(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        exchange.send(200, JSON, models_body(exchange, snapshot.names(key.models)), _identified(exchange))

    def _operation_at(self, path: str) -> Operation | None:
        """Return the operation at a path. In Gemini's API the path contains the model."""
        return self._operations.get(path) or operation_at(path)

    def _resource_of(self, path: str) -> Resource | None:
        return next((resource for resource in self._resources if resource.methods(path)), None)

    def _served_near(self, path: str) -> str:
        """Return the supported paths similar to a path."""
        if is_gemini(path):
            return f"served are {_GEMINI_SERVED}"
        if path.startswith(_BELOW_MCP):
            return "served are POST /mcp, POST /mcp/{server}"
        below = "/".join(path.split("/")[:3])
        served = [f"POST {one}" for one in self._operations if one == below or one.startswith(below + "/")]
        more = _MORE.get(below)
        if more is not None:
            served += more
        if not served:
            served = [f"POST {one}" for one in self._operations if one.startswith("/v1/")]
        return f"served are {', '.join(served)}"

    def _methods_of(self, path: str) -> tuple[str, ...]:
        """Return the methods that a path supports; empty if there are none."""
        if self._operation_at(path) is not None:
            return ("POST",)
        resource = self._resource_of(path)
        found = resource.methods(path) if resource is not None else ()
        return found or (("GET",) if path in _READ or path.startswith(_MODELS + "/") else ())

    @contextlib.contextmanager
    def _errors_as_answers(self, exchange: Exchange, shape: ErrorShape) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            if exchange.cut_by is None:
                raise
            send_error(exchange, exchange.cut_by, _identified(exchange), shape)
        except MethodNotAllowed as error:
            allowed = ", ".join(self._methods_of(exchange.path)).encode()
            send_error(exchange, error, (*_identified(exchange), (b"allow", allowed)), shape)
        except TollkeeperError as error:
            shown = public_error(error)
            if shown is not error:
                _log.warning(
                    "request failed",
                    extra={
                        "path": exchange.path[:100],
                        "request_id": exchange.request_id.decode(),
                        "code": error.error_code,
                        "reason": error.log_message,
                    },
                )
            send_error(exchange, shown, _identified(exchange), shape)
        except Exception:  # the edge of the data plane: without an answer the connection would hang for ever
            told = {"path": exchange.path[:100], "request_id": exchange.request_id.decode()}
            _log.exception("request failed because of a fault of the gateway", extra=told)
            send_error(exchange, GatewayFault("the gateway failed; see its log"), _identified(exchange), shape)


def _identified(exchange: Exchange) -> Headers:
    """Return the header that names an answer, for errors whose body repeats it."""
    return ((REQUEST_ID, exchange.request_id),)
