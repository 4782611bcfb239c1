"""The external scaler that KEDA asks over gRPC: which metric, what it is now, and whether anything is to be done.

A ScaledObject's metadata names the model, the signal (queue, kv or ttft) and the target per replica. Where a signal is
not known the call fails (UNAVAILABLE), so that KEDA keeps the replicas or takes its own fallback; 0 would end them.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc

from analytics.autoscaling import keda_messages as messages
from analytics.autoscaling.signals import SIGNALS, ModelSignals
from contracts.errors import ConfigurationError, InvalidRequest, TollkeeperError

_log = logging.getLogger(__name__)

_THREADS: Final = 4
_CALLS: Final = 64
_STREAMS: Final = 2  # at most: each holds a thread while it lasts
_LOOK_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 2.0
# What is aimed at per replica unless told: requests in line, a share of the cache, seconds.
_TARGETS: Final[Mapping[str, float]] = {"queue": 4.0, "kv": 0.8, "ttft": 1.0}


class Signals(Protocol):
    """Gives the signals of all models, to several threads; `SignalReader` is one."""

    def read(self) -> dict[str, ModelSignals]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a ScaledObject asks for."""

    model: str
    signal: str
    target: float

    @property
    def metric(self) -> str:
        """Name the metric, as KEDA will ask for it."""
        return f"tollkeeper-{self.signal}"

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> "Wanted":
        """Read the metadata of a ScaledObject. Raises InvalidRequest on what is missing or cannot be."""
        model, signal = metadata.get("model", ""), metadata.get("signal", "queue")
        if not model:
            raise InvalidRequest("the ScaledObject's metadata lacks `model`; name the model to scale", param="model")
        if signal not in SIGNALS:
            raise InvalidRequest(f"signal is {signal[:40]!r}; it must be one of {', '.join(SIGNALS)}", param="signal")
        given = metadata.get("target", "")
        try:
            target = float(given) if given else _TARGETS[signal]
        except ValueError:
            target = math.nan
        if not 0 < target < 1e12:
            raise InvalidRequest(f"target is {given[:40]!r}; it must be a number above 0", param="target")
        return cls(model, signal, target)


class ExternalScaler:
    """The gRPC server. `port` is the one that was bound. Raises ConfigurationError where it cannot be."""

    def __init__(self, signals: Signals, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._signals = signals
        self._stopped = threading.Event()
        self._streams = threading.Semaphore(_STREAMS)
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="scaler"),
            options=(("grpc.so_reuseport", 0),),
            maximum_concurrent_rpcs=_CALLS,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    messages.SERVICE,
                    {
                        "IsActive": _unary(self._is_active, messages.ScaledObjectRef),
                        "StreamIsActive": grpc.unary_stream_rpc_method_handler(
                            self._stream,
                            request_deserializer=messages.ScaledObjectRef.FromString,
                            response_serializer=_bytes,
                        ),
                        "GetMetricSpec": _unary(self._spec, messages.ScaledObjectRef),
                        "GetMetrics": _unary(self._metrics, messages.GetMetricsRequest),
                    },
                ),
            )
        )
        shown = f"[{host}]" if ":" in host else host
        try:
            self.port: int = self._server.add_insecure_port(f"{shown}:{port}")
        except RuntimeError as error:
            raise ConfigurationError(
                f"cannot listen on {host} port {port}; stop what holds it or set TOLLKEEPER_ANALYTICS_SCALER_PORT"
            ) from error

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self) -> None:
        """Take nothing more, and finish what is under way, for at most two seconds. Blocks."""
        self._stopped.set()
        self._server.stop(_STOP_SECONDS).wait()

    def _is_active(self, asked: Any, context: grpc.ServicerContext) -> Any:
        wanted = _wanted(asked, context)
        return messages.IsActiveResponse(result=self._activity(wanted, context))

    def _stream(self, asked: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Say when activity begins or ends, for as long as it is listened to."""
        wanted = _wanted(asked, context)
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_STREAMS} streams are open; use the external scaler")
        try:
            told: bool | None = None
            while context.is_active() and not self._stopped.is_set():
                is_active = self._activity(wanted, context)
                if is_active is not told:
                    told = is_active
                    yield messages.IsActiveResponse(result=is_active)
                self._stopped.wait(_LOOK_SECONDS)
        finally:
            self._streams.release()

    def _spec(self, asked: Any, context: grpc.ServicerContext) -> Any:
        wanted = _wanted(asked, context)
        spec = messages.MetricSpec(
            metricName=wanted.metric, targetSize=math.ceil(wanted.target), targetSizeFloat=wanted.target
        )
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    def _metrics(self, asked: Any, context: grpc.ServicerContext) -> Any:
        """Give the signal so that KEDA's average comes to it: shares and times are those of one replica, times all."""
        wanted = _wanted(asked.scaledObjectRef, context)
        found = self._of(wanted, context)
        value = found.value(wanted.signal)
        if value is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{wanted.signal} of {wanted.model!r} is not known now")
        total = value if wanted.signal == "queue" else value * found.replicas
        return messages.GetMetricsResponse(
            metricValues=[
                messages.MetricValue(metricName=wanted.metric, metricValue=math.ceil(total), metricValueFloat=total)
            ]
        )

    def _activity(self, wanted: Wanted, context: grpc.ServicerContext) -> bool:
        found = self._of(wanted, context)
        return bool(found.waiting or found.running)

    def _of(self, wanted: Wanted, context: grpc.ServicerContext) -> ModelSignals:
        try:
            found = self._signals.read().get(wanted.model)
        except TollkeeperError as error:
            _log.warning("autoscaling signals cannot be read", extra={"code": error.code})
            context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
        if found is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"no replica of {wanted.model!r} has told of itself lately")
        return found


@contextmanager
def open_scaler(signals: Signals, host: str, port: int) -> Iterator[ExternalScaler | None]:
    """Run an external scaler for a while; none where the port is 0. Raises ConfigurationError where it is taken."""
    if not port:
        yield None
        return
    scaler = ExternalScaler(signals, host=host, port=port)
    scaler.start()
    try:
        yield scaler
    finally:
        scaler.stop()


def _wanted(asked: Any, context: grpc.ServicerContext) -> Wanted:
    try:
        return Wanted.of(dict(asked.scalerMetadata))
    except InvalidRequest as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)


def _unary(answer: Callable[[Any, grpc.ServicerContext], Any], asked: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=asked.FromString, response_serializer=_bytes
    )


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
