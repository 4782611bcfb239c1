"""Runs an engine host: its socket, its models, the detection of stuck steps, and its shutdown."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Final

from backends.engine.base import Engine, EngineBuilder, ModelOrder
from backends.engine.connection import Connection
from backends.engine.device_watch import start_watch
from backends.engine.embed_order import embedder_order
from backends.engine.host import EngineHost
from backends.engine.model_source import find_model
from backends.engine.network import listen_on_network
from backends.engine.revival import Revival
from backends.engine.settings import EngineHostSettings
from backends.engine.socket_file import SocketFile
from backends.processes.beat import until_beat
from backends.processes.kept_imports import kept_imports
from contracts.errors import ConfigurationError, Unavailable

_log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.25
_LAST_WORDS_SECONDS: Final = 2.0  # at shutdown, to send aborted requests' accounts and step records


def torch_builder(settings: EngineHostSettings, loading: threading.Lock) -> EngineBuilder:
    """Return the builder of torch engines. Torch is imported at the first load, after the socket is open."""

    def build(order: ModelOrder) -> Engine:
        path = find_model(order.source)
        with loading:
            with kept_imports():
                from backends.engine.torch_builder import build as build_torch  # slow: after the socket is open

            return build_torch(settings, order, path)

    return build


def vllm_builder(settings: EngineHostSettings, loading: threading.Lock) -> EngineBuilder:
    """Return the builder of vLLM engines. vLLM is imported at the first load, after the socket is open."""

    def build(order: ModelOrder) -> Engine:
        path = find_model(order.source)
        with loading:
            try:
                from backends.engine.vllm_builder import build as build_vllm

                return build_vllm(settings, order, path)  # imports vLLM, which takes many seconds
            except ModuleNotFoundError as error:
                raise ConfigurationError(
                    f"this Python has no {error.name}; run the host with the one in .venv-vllm (make vllm sets it up)"
                ) from error

    return build


async def run(settings: EngineHostSettings) -> None:
    """Serve with the configured kind of engine until a signal to stop.

    Raises ConfigurationError if the socket cannot be opened.
    """
    loading = threading.Lock()
    builders = {"torch": torch_builder, "vllm": vllm_builder}
    await serve(settings, builders[settings.engine_kind](settings, loading), loading, kind=settings.engine_kind)


async def serve(
    settings: EngineHostSettings,
    build: EngineBuilder,
    loading: threading.Lock,
    *,
    kind: str,
) -> None:
    """Serve with engines from any builder until SIGTERM or SIGINT; a second signal skips the drain."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    loop = asyncio.get_running_loop()
    socket_file = SocketFile(settings.socket)
    try:
        stop = asyncio.Event()
        hurry = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, lambda: hurry.set() if stop.is_set() else stop.set())
        host = EngineHost(settings, build, loading, kind=kind, version=_version(kind))
        server = await loop.create_unix_server(lambda: Connection(host), sock=socket_file.socket)
        remote = await listen_on_network(settings, lambda: Connection(host))
        _log.info("engine host listens socket=%s engine=%s", settings.socket, host.engine)
        if settings.gpu_telemetry:
            start_watch(host.devices, settings.gpu_dcgm_url)
        for order in settings.models:
            host.models.load(order)
        if settings.has_embedder:
            host.models.load(embedder_order())
        watching = [asyncio.create_task(watch(host), name="watch"), asyncio.create_task(host.lifecycle.run())]
        watching.append(asyncio.create_task(revive(Revival(host.models, host.load_again)), name="revive"))
        await stop.wait()
        await _end(host, hurry)
        for task in watching:
            task.cancel()
        host.devices.stop()
        server.close()
        if remote is not None:
            remote.close()
    finally:
        socket_file.close()


def _version(kind: str) -> str:
    """Return the served release: vLLM's or ours; empty if it is not installed as a package."""
    try:
        return metadata.version("vllm" if kind == "vllm" else "tollkeeper")
    except metadata.PackageNotFoundError:
        return ""


async def watch(host: EngineHost) -> None:
    """Check regularly for stuck steps: mark a model as failed while a step takes too long, and as ready if
    it recovers.
    """
    limit = host.settings.engine_stuck_seconds
    stuck: set[str] = set()
    while True:
        await asyncio.sleep(until_beat(_WATCH_SECONDS))
        for model in host.models:
            name, seconds = model.order.name, model.stalled_ns() / 1e9
            if seconds > limit and model.state == "ready":
                stuck.add(name)
                _log.error("model is stuck model=%s step_seconds=%.1f", name, seconds)
                model.set_state("failed", f"a step has been running for more than {limit:g} seconds")
            elif name in stuck and seconds <= limit:
                stuck.discard(name)
                if model.state == "failed" and not model.closed.done():
                    _log.warning("model is back model=%s", name)
                    model.set_state("ready")


async def revive(revival: Revival) -> None:
    """Load models with failed engines again, until cancelled."""
    while True:
        await asyncio.sleep(until_beat(_WATCH_SECONDS))
        try:
            revival.look()
        except Exception:  # the task must not end: no model would be loaded again
            _log.exception("model not loaded again")


async def _end(host: EngineHost, hurry: asyncio.Event) -> None:
    """Let requests finish within the drain time, abort the rest, send the last accounts, and free the models."""
    _log.info("draining requests=%d", host.requests)
    host.drain()
    await _until(lambda: not host.requests or hurry.is_set(), host.settings.engine_drain_seconds)
    if host.requests:
        _log.warning("requests aborted at the end of draining requests=%d", host.requests)
        host.abort_all(Unavailable("this engine host is stopping", code="draining"))
        await _until(lambda: not host.requests, _LAST_WORDS_SECONDS)
    models = list(host.models)
    for model in models:
        model.close()
    await _until(lambda: all(model.closed.done() for model in models), _LAST_WORDS_SECONDS)
    await _until(lambda: not host.outbox.pending or not host.connections or hurry.is_set(), _LAST_WORDS_SECONDS)
    if host.outbox.pending:
        _log.warning("step records left behind records=%d", host.outbox.pending)
    host.close()
    await _until(lambda: not host.connections, _LAST_WORDS_SECONDS)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
