"""One request from Envoy: read until its body is complete, assigned to an endpoint by the router, and followed to its
end.

Gateway API Inference Extension v1: the header `x-gateway-destination-endpoint` and the metadata `envoy.lb` name the
chosen endpoint and its alternatives, best first; the proxy falls back in this order.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf import struct_pb2

from algorithms.routing.policy_input import RoutingRequest
from backends.ext_proc.messages import FULL_DUPLEX, STREAMED, ProcessingResponse
from contracts.api.generation import Result
from contracts.errors import InvalidRequest, TollkeeperError, Unavailable, UnknownModel, UpstreamUnreachable
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.serving.discovery import discover_of
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.routing.replicas.choice import Choice, Placed
from gateway.routing.replicas.router import Router
from gateway.routing.replicas.routing_requests import estimated_request

DESTINATION: Final = "x-gateway-destination-endpoint"
_SUBSET: Final = "x-gateway-destination-endpoint-subset"
_NAMESPACE: Final = "envoy.lb"
_SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
_MOST_FALLBACKS: Final = 3  # alternative endpoints to name
_PIECE_BYTES: Final = 60_000  # of a body that is returned in pieces; Envoy accepts up to 64 KiB
_OVERWRITE: Final = 2  # HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
_SESSION: Final = "x-session-id"


class Picker:
    """Chooses endpoints for requests. `router` and `snapshot` are a gateway's."""

    def __init__(self, router: Router, snapshot: Callable[[], Snapshot], clock: Clock, max_body_bytes: int) -> None:
        self._router = router
        self._snapshot = snapshot
        self._clock = clock
        self.max_body_bytes = max_body_bytes
        self.picks = 0

    async def process(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Answer Envoy's messages about one request."""
        stream = _Stream(self, self._clock)
        try:
            async for message in requests:
                for answer in stream.take(message):
                    yield answer
                if stream.is_refused:
                    return
        finally:
            stream.end()

    def pick(
        self, headers: dict[str, str], body: bytes, subset: frozenset[str] | None
    ) -> "tuple[list[str], Placed | None, Progress]":
        """Return the endpoints, best first, and what tracks the request there.

        Raises InvalidRequest if the body names no model, UnknownModel, and Unavailable if no endpoint is left.
        """
        self.picks += 1
        snapshot = self._snapshot()
        fields = _fields_of(body)
        model = _model_of(fields, snapshot)
        pool = snapshot.pools[model.pool]
        within = None
        if subset is not None:
            within = frozenset(spec.id for spec in pool.targets if endpoint_of(spec) in subset)
        choice = self._choice(model, pool, ask_of_body(fields, body, headers.get(_SESSION, "")), within)
        candidates = [spec for spec in choice.candidates if endpoint_of(spec)]
        if not candidates:
            raise Unavailable(f"no endpoint of model {model.id!r} is ready")
        progress = Progress()
        placed = choice.begin(candidates[0], progress)
        return [endpoint_of(spec) for spec in candidates[:_MOST_FALLBACKS]], placed, progress

    def _choice(
        self, model: ModelSpec, pool: PoolSpec, demand: RoutingRequest, within: frozenset[str] | None
    ) -> Choice:
        if self._router.is_plain(pool):
            return Choice(self._router.choose(model, self._snapshot(), within))
        return self._router.place(model, pool, demand, within)


class _Stream:
    """The state of one request."""

    def __init__(self, picker: Picker, clock: Clock) -> None:
        self._picker = picker
        self._clock = clock
        self._headers: dict[str, str] = {}
        self._subset: frozenset[str] | None = None
        self._body = bytearray()
        self._is_duplex = False
        self._sees_answer = False
        self._placed: Placed | None = None
        self._progress: Progress | None = None
        self._has_failed = False
        self._is_done = False
        self.is_refused = False

    def take(self, message: Any) -> list[Any]:
        """Return the answers to one of Envoy's messages."""
        if message.HasField("request_headers"):
            return self._take_headers(message)
        if message.HasField("request_body"):
            return self._take_body(message.request_body)
        answer = ProcessingResponse()
        if message.HasField("request_trailers"):
            answers = self._picked(is_trailed=True) if self._is_duplex and self._placed is None else []
            answer.request_trailers.SetInParent()
            return answers if self.is_refused else [*answers, answer]
        if message.HasField("response_headers"):
            status = _header(message.response_headers.headers, ":status")
            self._has_failed = not status.startswith(("2", "4"))
            answer.response_headers.SetInParent()
        elif message.HasField("response_body"):
            return self._follow(message.response_body)
        elif message.HasField("response_trailers"):
            answer.response_trailers.SetInParent()
        return [answer]

    def end(self) -> None:
        """Record that the request has ended."""
        if self._placed is not None and not self._is_done:
            self._is_done = True
            self._placed.end(Result(), UpstreamUnreachable("the endpoint failed") if self._has_failed else None)

    def _take_headers(self, message: Any) -> list[Any]:
        mode = message.protocol_config
        self._is_duplex = mode.request_body_mode == FULL_DUPLEX
        self._sees_answer = mode.response_body_mode in (STREAMED, FULL_DUPLEX)
        self._headers = {
            one.key: one.value or one.raw_value.decode("latin-1") for one in message.request_headers.headers.headers
        }
        self._subset = _subset_of(message)
        if message.request_headers.end_of_stream:  # for example a list of models: any endpoint can answer
            answer = ProcessingResponse()
            answer.request_headers.SetInParent()
            return [answer]
        if self._is_duplex:
            return []
        answer = ProcessingResponse()
        answer.request_headers.SetInParent()
        return [answer]

    def _take_body(self, part: Any) -> list[Any]:
        if len(self._body) + len(part.body) > self._picker.max_body_bytes:
            return [self._refused(413, f"the body is larger than {self._picker.max_body_bytes} bytes")]
        self._body += part.body
        if part.end_of_stream:
            return self._picked()
        if self._is_duplex:
            return []
        answer = ProcessingResponse()
        answer.request_body.SetInParent()
        return [answer]

    def _picked(self, *, is_trailed: bool = False) -> list[Any]:
        body = bytes(self._body)
        try:
            endpoints, self._placed, self._progress = self._picker.pick(self._headers, body, self._subset)
        except TollkeeperError as error:
            return [self._refused(error.status, error.message)]
        answer = ProcessingResponse()
        common = answer.request_headers.response if self._is_duplex else answer.request_body.response
        _set_header(common.header_mutation, DESTINATION, ",".join(endpoints))
        common.clear_route_cache = True
        metadata = struct_pb2.Struct()
        metadata[DESTINATION] = ",".join(endpoints)
        answer.dynamic_metadata.fields[_NAMESPACE].struct_value.CopyFrom(metadata)
        return [answer, *_sent_back(body, "request_body", is_last=not is_trailed)] if self._is_duplex else [answer]

    def _follow(self, part: Any) -> list[Any]:
        progress = self._progress
        if progress is not None and progress.first_at_ns is None and part.body and not self._has_failed:
            progress.first_at_ns = self._clock.monotonic_ns()
            if progress.on_first is not None:
                progress.on_first(progress.first_at_ns)
        if part.end_of_stream:
            self.end()
        if self._is_duplex:
            return list(_sent_back(part.body, "response_body", is_last=part.end_of_stream))
        answer = ProcessingResponse()
        answer.response_body.SetInParent()
        return [answer]

    def _refused(self, status: int, message: str) -> Any:
        self.is_refused = True
        answer = ProcessingResponse()
        answer.immediate_response.status.code = status
        _set_header(answer.immediate_response.headers, "content-type", "application/json")
        fault = {"error": {"message": message, "type": "invalid_request_error" if status < 500 else "server_error"}}
        answer.immediate_response.body = json.dumps(fault).encode()
        return answer


def endpoint_of(spec: TargetSpec) -> str:
    """Return a target's `HOST:PORT`; empty if it is not reached over the network, or has not been resolved yet."""
    if discover_of(spec):
        return ""
    parts = urlsplit(spec.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def ask_of_body(fields: Mapping[str, Any], body: bytes, session: str) -> RoutingRequest:
    """Return a request's demand on a pool, as a gateway would for the same body from a tenant without a salt."""
    most = fields.get("max_completion_tokens", fields.get("max_tokens", 0))
    output_tokens = most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else 0
    return estimated_request(body, "", session, output_tokens, is_whole=fields.get("stream") is not True)


def _model_of(fields: Mapping[str, Any], snapshot: Snapshot) -> ModelSpec:
    name = fields.get("model")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("the request names no model; send a JSON body with `model`", param="model")
    model = snapshot.models.get(name)
    if model is None:
        raise UnknownModel(f"model {name[:100]!r} is not in the picker's configuration")
    return model


def _fields_of(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise InvalidRequest("the body is not JSON") from error
    return found if isinstance(found, dict) else {}


def _subset_of(message: Any) -> frozenset[str] | None:
    """Return the endpoints that the proxy allows; `None`: all."""
    for entry in message.metadata_context.filter_metadata:
        if entry.key == _SUBSET_NAMESPACE and _SUBSET in entry.value.fields:
            found = entry.value.fields[_SUBSET]
            values = [one.string_value for one in found.list_value.values] or found.string_value.split(",")
            return frozenset(value.strip() for value in values if value.strip())
    return None


def _header(headers: Any, name: str) -> str:
    for one in headers.headers:
        if one.key == name:
            return str(one.value or one.raw_value.decode("latin-1"))
    return ""


def _set_header(mutation: Any, name: str, value: str) -> None:
    option = mutation.set_headers.add(append_action=_OVERWRITE)
    option.header.key, option.header.raw_value = name, value.encode()


def _sent_back(body: bytes, field: str, *, is_last: bool) -> Iterator[Any]:
    for begin in range(0, max(len(body), 1), _PIECE_BYTES):
        answer = ProcessingResponse()
        streamed = getattr(answer, field).response.body_mutation.streamed_response
        streamed.body = body[begin : begin + _PIECE_BYTES]
        streamed.end_of_stream = is_last and begin + _PIECE_BYTES >= len(body)
        yield answer
