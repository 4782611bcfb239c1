"""A scripted engine that can sleep, on a GPU that is a number: for tests of what a host does with its models."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from backends.engine.base import Engine, EngineBuilder, ModelOrder
from backends.engine.device_watch import DeviceWatch
from backends.engine.engine_thread import EngineThread
from backends.gpu.base import DeviceIdentity, DeviceProcess, DeviceSample, Round
from backends.gpu.sampler import GpuSampler
from bench.scripted_engine import Script, ScriptedEngine
from contracts.errors import Unavailable
from tests.backends.engine.host_client import HostClient, RunningHost, StartHost

GIB = 1 << 30
UUID = "GPU-1"


@dataclass
class Gpu:
    """One GPU whose memory engines take and give. `processes` are what the driver tells of."""

    total: int = 80 * GIB
    held: dict[int, int] = field(default_factory=dict)
    processes: tuple[DeviceProcess, ...] = ()

    def sample(self) -> DeviceSample:
        used = sum(self.held.values())
        return DeviceSample(
            UUID,
            0,
            memory_total_bytes=self.total,
            memory_used_bytes=used,
            memory_free_bytes=self.total - used,
            processes=self.processes,
        )

    def watched_by(self, watch: DeviceWatch) -> None:
        """Be the one GPU that a host knows."""
        watch.start(GpuSampler([], lambda found: None), [DeviceIdentity(UUID, 0, "a GPU")])
        self.tell(watch)

    def tell(self, watch: DeviceWatch) -> None:
        watch.take(Round((self.sample(),)))


class SleepyEngine(ScriptedEngine):
    """Accepts `awake` bytes of the GPU; `deeds` is what was done to it."""

    gpu: Gpu
    deeds: list[str]
    awake: int
    can_sleep: bool
    wake_gate: threading.Event | None
    wake_error: Unavailable | None

    def _take(self, size: int) -> None:
        if size:
            self.gpu.held[id(self)] = size
        else:
            self.gpu.held.pop(id(self), None)

    def sleep(self, level: int) -> None:
        self.deeds.append(f"sleep {level}")
        self._take(GIB)

    def wake(self) -> None:
        if self.wake_gate is not None:
            self.wake_gate.wait(10)
        if self.wake_error is not None:
            raise self.wake_error
        self.deeds.append("wake")
        self._take(self.awake)

    def close(self) -> None:
        self.deeds.append("close")
        self._take(0)
        super().close()


@dataclass
class SleepyModels:
    """Builds them; `deeds` by model, `engines` in the order they were built."""

    gpu: Gpu = field(default_factory=Gpu)
    script: Script = field(default_factory=Script)
    awake: int = 30 * GIB
    can_sleep: bool = True
    wake_gate: threading.Event | None = None
    wake_error: Unavailable | None = None
    load_error: Callable[[ModelOrder], Unavailable | None] = lambda order: None
    deeds: dict[str, list[str]] = field(default_factory=dict)

    @property
    def build(self) -> EngineBuilder:
        def build(order: ModelOrder) -> Engine:
            error = self.load_error(order)
            if error is not None:
                raise error
            engine = SleepyEngine(order, self.script)
            engine.gpu, engine.awake, engine.can_sleep = self.gpu, self.awake, self.can_sleep
            engine.wake_gate, engine.wake_error = self.wake_gate, self.wake_error
            engine.deeds = self.deeds.setdefault(order.name, [])
            engine.deeds.append("load")
            engine._take(self.awake)
            return engine

        return build


def load(running: RunningHost, *names: str) -> None:
    for name in names:
        running.host.models.load(ModelOrder(name, "scripted"))


def thread(running: RunningHost, name: str) -> EngineThread:
    model = running.host.models.get(name)
    assert isinstance(model, EngineThread)
    return model


async def a_host(
    start_host: StartHost, models: SleepyModels, *names: str, **settings: object
) -> tuple[RunningHost, HostClient]:
    running = await start_host(build=models.build, **settings)
    load(running, *names)
    client = await running.client()
    for name in names:
        await client.ready(name)
    return running, client


async def measured(running: RunningHost, models: SleepyModels, *names: str) -> None:
    """Have the host know what each model takes: put to sleep and woken one by one, with the GPU looked at between."""
    lifecycle, watch = running.host.lifecycle, running.host.devices
    for name in names:
        await lifecycle.put_away(thread(running, name))
        models.gpu.tell(watch)
        await lifecycle.ensure_awake(thread(running, name))
        models.gpu.tell(watch)
        lifecycle.memory.look(10**18, watch.rooms())
