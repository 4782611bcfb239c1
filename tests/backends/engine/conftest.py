"""Engine hosts in the test's event loop, on real sockets, with tiny, scripted and built-in models."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from backends.engine.app import torch_builder
from backends.engine.base import EngineBuilder, ModelOrder
from backends.engine.connection import Connection
from backends.engine.embed_order import embedder_order
from backends.engine.engine_thread import EngineThread
from backends.engine.host import EngineHost
from backends.engine.settings import BUILTIN_NAME, BUILTIN_PATH, EngineHostSettings
from backends.engine.socket_file import SocketFile
from bench.scripted_engine import Script, scripted_builder
from tests.backends.engine.host_client import RunningHost, StartHost
from tests.backends.engine.torch_engine.tiny_models import build_model
from tests.patient_loop import PatientUvloop

TINY_KV_BYTES = 4 << 20


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    build_model("llama", path)
    return path


@pytest.fixture
async def start_host(tmp_path: Path, tiny_path: Path) -> AsyncIterator[StartHost]:
    """Start hosts. `models` names what they load: "tiny", "builtin", "embedder", "scripted"; `script` how that plays.

    At the end, every torch engine must have all its blocks and seats back.
    """
    started: list[RunningHost] = []

    async def start(
        *models: str, script: Script | None = None, build: EngineBuilder | None = None, **settings: object
    ) -> RunningHost:
        options = {"engine_kv_bytes": TINY_KV_BYTES, "engine_threads": 1, "engine_max_sequences": 16} | settings
        told = EngineHostSettings(data=tmp_path, engine_model="none", **options)  # type: ignore[arg-type]  # the test's
        loading = threading.Lock()
        torch_build = torch_builder(told, loading)
        scripted_build = build or scripted_builder(script or Script())

        def build_either(order: ModelOrder):
            return scripted_build(order) if order.source == "scripted" else torch_build(order)

        host = EngineHost(told, build_either, loading, kind="torch", version="test")
        file = SocketFile(tmp_path / f"{len(started)}.sock")
        server = await asyncio.get_running_loop().create_unix_server(lambda: Connection(host), sock=file.socket)
        running = RunningHost(host, file.path, server)
        started.append(running)
        for model in models:
            host.models.load(_order(model, tiny_path))
        return running

    yield start
    for running in started:
        for model in running.host.models:
            if isinstance(model, EngineThread) and model.state == "ready" and model.order.source != "scripted":
                await _check_empty(running, model)
        await running.close()


def _order(model: str, tiny_path: Path) -> ModelOrder:
    if model == "embedder":
        return embedder_order()
    if model == "builtin":
        return ModelOrder(BUILTIN_NAME, str(BUILTIN_PATH), options={"kv_bytes": 256 << 20})
    return ModelOrder(model, {"scripted": "scripted", "tiny": str(tiny_path)}[model])


async def _check_empty(running: RunningHost, model: EngineThread) -> None:
    for client in running.clients:
        await client.close()
    while running.host.connections:
        await asyncio.sleep(0.005)
    while True:
        stats = await model.call(lambda engine: engine.stats())
        assert isinstance(stats, dict)
        if not (stats["running"] or stats["waiting"]):
            break
        await asyncio.sleep(0.005)
    assert (stats["kv_blocks_held"], stats["decode_rows"]) == (0, 0)
    await model.call(lambda engine: engine.blocks.check_integrity())  # type: ignore[attr-defined]  # a torch engine's


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on the event loop that hosts run on, which no stall of the machine hurries."""
    return {"uvloop": PatientUvloop}
