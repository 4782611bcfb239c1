"""The lifecycle of a host's models: load and wake on demand, sleep or unload when idle, replace without interruption.

Decides with `placement.py`, `residency.py` and `pace.py`. Executes one change at a time, because one needs memory that
another frees.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_samples import StepSample
from backends.engine.base import Facts
from backends.engine.cold_starts import ColdStart, ColdStarts
from backends.engine.engine_thread import EngineThread, Output
from backends.engine.hot_prefixes import HotPrefixes
from backends.engine.memory_book import MemoryBook
from backends.engine.pace import Pace
from backends.engine.placement import DeviceRoom, Need, Plan, Resident, place, wake
from backends.engine.residency import due
from backends.engine.served import Served
from backends.processes.beat import until_beat
from contracts.engine.wire import Submit
from contracts.errors import ConfigurationError, TollkeeperError, Unavailable

if TYPE_CHECKING:
    from backends.engine.host import EngineHost

_log = logging.getLogger(__name__)

_TICK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.02
_WITHDRAWN_SECONDS: Final = 60.0  # until a slow model is used again


@dataclass(slots=True)
class _Life:
    """A model's state that outlasts its unloading."""

    used_ns: int
    prefixes: HotPrefixes = field(default_factory=HotPrefixes)
    pace: Pace = field(default_factory=Pace)
    paced_engine: str = ""  # the engine that `pace` describes
    withdrawn_ns: int = 0  # when it was taken out of service as slow; 0: in service


class Lifecycle:
    """Changes the models of one host, on its event loop."""

    def __init__(self, host: "EngineHost") -> None:
        self._host = host
        self._policy = host.settings.stay_policy
        self._lives: dict[str, _Life] = {}
        self._changing = asyncio.Lock()
        self._waking: dict[str, asyncio.Task[None]] = {}
        self._fitting: asyncio.Task[None] | None = None
        self.memory = MemoryBook()
        self.cold_starts = ColdStarts()

    # Notifications from the host.

    def used(self, model: Served, submit: Submit) -> None:
        """Record a request. If the model is not awake, wake or load it; the request waits in its thread."""
        name = model.order.name
        life = self._life(name)
        life.used_ns = time.monotonic_ns()
        life.prefixes.see(submit.token_ids, submit.adapter, submit.cache_salt)
        if isinstance(model, EngineThread) and not model.is_awake and name not in self._waking:
            task = asyncio.create_task(self._bring_back(model), name=f"wake-{name}")
            self._waking[name] = task
            task.add_done_callback(lambda _: self._waking.pop(name, None))

    def saw(self, model: Served, output: Output) -> None:
        """Record a model's output: its last use, and the speed of its steps."""
        if output.events:
            self._life(model.order.name).used_ns = time.monotonic_ns()
        limit = self._host.settings.engine_slow_ratio
        if not limit or not output.steps:
            return
        life = self._life(model.order.name)
        if life.paced_engine != model.order.engine:  # loaded again, perhaps with other weights or on another GPU
            life.pace, life.paced_engine = Pace(limit=limit), model.order.engine
        life.pace.see(output.steps)

    def on_gpu_lost(self, reason: str, models: Iterable[str]) -> None:
        """Mark the models of a lost GPU as failed: nothing can be computed there until it is reset."""
        for model in list(self._host.models):
            if model.order.name in models and model.state != "failed":
                model.set_state("failed", f"{reason}; reset it or take it out of service, then load the model again")

    # Commands.

    async def run(self) -> None:
        """Check once a second for models that are idle for too long or slow, until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_TICK_SECONDS))
            try:
                await self.tick()
            except TollkeeperError as error:
                _log.warning("idle model not unloaded reason=%s", error.message)
            except Exception:  # retried in a second
                _log.exception("lifecycle failed")

    async def tick(self, now_ns: int | None = None) -> None:
        """Execute the changes that are due at `now_ns` (monotonic), by default now."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        self._measure_memory(now_ns)
        for model in self._threads():
            self._watch_pace(model, now_ns)
        if self._changing.locked():
            return
        for deed, name in due(self._residents(), self._policy, now_ns):
            model = self._thread(name)
            if deed == "sleep":
                await self.sleep(model, self._host.settings.engine_sleep_level)
            elif model.is_started:
                await self.put_away(model)

    async def sleep(self, model: EngineThread, level: int) -> None:
        """Put an idle model to sleep. Raises Unavailable while requests run, ConfigurationError if it cannot sleep."""
        async with self._changing:
            await self._sleep(model, level)

    async def put_away(self, model: EngineThread) -> None:
        """Unload an idle model; the next request loads it again. Raises Unavailable while requests run."""
        async with self._changing:
            await self._put_away(model)

    async def ensure_awake(self, model: EngineThread) -> float:
        """Wake or load a model, evicting others if it needs their memory. Return the seconds that it took.

        Raises Unavailable if there is no room, with the calculation, or if it did not start, with the reason.
        """
        async with self._changing:
            if model.is_awake:
                return 0.0
            began_ns = time.monotonic_ns()
            kind: ColdStart = "wake" if model.is_started else "load"
            await self._host.devices.refresh()
            await self._make_room(self._plan(model, kind))
            self.memory.begin(model.order.name, began_ns, self._host.devices.rooms())
            if kind == "wake":
                await model.wake()
            else:
                model.start()
                while not model.is_awake and model.state != "failed":
                    await asyncio.sleep(_POLL_SECONDS)
                if model.state == "failed":
                    raise Unavailable(f"model {model.order.name!r} was not loaded: {model.failure}", code="load_failed")
            took_ns = time.monotonic_ns() - began_ns
            self.memory.end(model.order.name, time.monotonic_ns())
            self.cold_starts.note(model.order.name, kind, took_ns)
            _log.info("model is back model=%s by=%s seconds=%.2f", model.order.name, kind, took_ns / 1e9)
            return took_ns / 1e9

    def hot_prefixes(self, name: str) -> HotPrefixes:
        """Return a model's most frequent prompt prefixes."""
        return self._life(name).prefixes

    async def room_for(self, name: str, needed_bytes: int | None, *, beside: EngineThread | None = None) -> None:
        """Free memory for a model that will be loaded, by evicting idle ones; do nothing if its need is unknown.

        `beside` is the model that it will replace, which stays meanwhile. Raises Unavailable, with the calculation.
        """
        async with self._changing:
            if needed_bytes is not None:
                self.memory.expect(name, needed_bytes)
            needed = self.memory.awake_bytes(name) if needed_bytes is None else needed_bytes
            await self._host.devices.refresh()
            rooms = self._rooms_of(name)
            if not rooms or needed is None:
                return
            stays = "" if beside is None else beside.order.name
            residents = [replace(one, is_busy=True) if one.model == stays else one for one in self._residents()]
            await self._make_room(place(Need(name, needed, ranks=len(rooms)), rooms, residents))

    def facts(self, model: Served) -> Facts:
        """Return a model's cold starts, memory and pace."""
        name = model.order.name
        life, starts = self._life(name), self.cold_starts
        return {
            "wake_expected_seconds": _seconds(starts.expected_ns(name, "wake")),
            "wake_last_seconds": _seconds(starts.last_ns(name, "wake")),
            "load_expected_seconds": _seconds(starts.expected_ns(name, "load")),
            "load_last_seconds": _seconds(starts.last_ns(name, "load")),
            "gpu_memory_awake_bytes": self.memory.awake_bytes(name),
            "gpu_memory_asleep_bytes": self.memory.asleep_bytes(name),
            "slow_ratio": life.pace.ratio,
            "is_slow": life.pace.is_slow,
        }

    # Helpers.

    async def _bring_back(self, model: EngineThread) -> None:
        try:
            await self.ensure_awake(model)
        except Exception as error:  # waiting requests must be answered
            if not isinstance(error, TollkeeperError):
                _log.exception("model not brought back model=%s", model.order.name)
                error = Unavailable(f"model {model.order.name!r} could not be brought back", code="load_failed")
            self._host.fail_all(error, model)

    def _plan(self, model: EngineThread, kind: ColdStart) -> Plan | None:
        """Return a plan for the memory that a model needs; `None` if memory is unknown: then loading is
        simply tried.
        """
        name = model.order.name
        rooms = self._rooms_of(name)
        awake_bytes = self.memory.awake_bytes(name)
        if not rooms or awake_bytes is None:
            return None
        others = [one for one in self._residents() if one.model != name]
        devices = tuple(room.uuid for room in rooms)
        if kind == "load":
            return place(Need(name, awake_bytes, ranks=len(rooms)), rooms, others)
        asleep = Resident(name, devices, awake_bytes, self.memory.asleep_bytes(name) or 0, is_asleep=True)
        return wake(asleep, rooms, others)

    def _rooms_of(self, name: str) -> list[DeviceRoom]:
        """Return the GPUs of a model; if it has not computed yet, the first GPU, which every engine uses first."""
        rooms, devices = self._host.devices.rooms(), self._host.devices.devices_of(name)
        return [room for room in rooms if room.uuid in devices] or rooms[:1]

    async def _make_room(self, plan: Plan | None) -> None:
        for step in plan.steps if plan is not None else ():
            model = self._thread(step.model)
            _log.info("model makes room model=%s for=%s by=%s", step.model, plan.model if plan else "", step.deed)
            if step.deed == "sleep":
                await self._sleep(model, self._host.settings.engine_sleep_level)
            else:
                await self._put_away(model)

    async def _sleep(self, model: EngineThread, level: int) -> None:
        await self._host.devices.refresh()
        self._require_idle(model)  # no await from here on, so that no request can arrive in between
        if not model.is_awake:
            return
        self.memory.begin(model.order.name, time.monotonic_ns(), self._host.devices.rooms())
        await model.sleep(level)
        self.memory.end(model.order.name, time.monotonic_ns(), asleep=True)
        _log.info("model sleeps model=%s level=%d", model.order.name, level)

    async def _put_away(self, model: EngineThread) -> None:
        self._require_idle(model)
        await self._host.models.put_away(model)
        _log.info("model unloaded model=%s", model.order.name)

    def _require_idle(self, model: EngineThread) -> None:
        if model.hello.kind == "embed":
            raise ConfigurationError(f"model {model.order.name!r} embeds; only models that generate can rest")
        count = len(self._host.requests_of(model))
        if count:
            raise Unavailable(f"model {model.order.name!r} serves {count} requests; it can rest when they have ended")
        if model.state != "ready":
            raise Unavailable(f"model {model.order.name!r} is {model.state}; only a ready one can rest")

    def _watch_pace(self, model: EngineThread, now_ns: int) -> None:
        life = self._lives.get(model.order.name)
        if life is None:
            return
        samples = life.pace.samples
        if samples and (self._fitting is None or self._fitting.done()):
            self._fitting = asyncio.create_task(_learn(life.pace, samples), name="pace")
        if life.withdrawn_ns:
            if now_ns - life.withdrawn_ns >= _WITHDRAWN_SECONDS * 1e9 and model.state == "draining":
                life.withdrawn_ns = 0
                life.pace.forget()
                _log.info("slow model is tried again model=%s", model.order.name)
                model.set_state("ready")
        elif life.pace.is_slow and model.state == "ready":
            life.withdrawn_ns = now_ns
            _log.error(
                "model is slow model=%s ratio=%.2f limit=%g", model.order.name, life.pace.ratio or 0.0, life.pace.limit
            )
            model.set_state("draining")

    def _measure_memory(self, now_ns: int) -> None:
        self.memory.look(now_ns, self._host.devices.rooms())
        started = [model for model in self._threads() if model.is_started]
        held = self._host.devices.held_bytes()
        if held and len(started) == 1 and started[0].state == "ready" and not self._changing.locked():
            self.memory.alone(started[0].order.name, held, asleep=not started[0].is_awake)

    def _residents(self) -> list[Resident]:
        return [
            Resident(
                model=model.order.name,
                devices=tuple(room.uuid for room in self._rooms_of(model.order.name)),
                awake_bytes=self.memory.awake_bytes(model.order.name) or 0,
                asleep_bytes=self.memory.asleep_bytes(model.order.name) or 0,
                is_asleep=not model.is_awake,
                can_sleep=model.can_sleep,
                is_busy=model.state != "ready" or bool(self._host.requests_of(model)),
                is_warm=self._policy.is_warm(model.order.name) or model.hello.kind == "embed",
                last_used_ns=self._life(model.order.name).used_ns,
            )
            for model in self._threads()
            if model.is_started
        ]

    def _threads(self) -> list[EngineThread]:
        return [model for model in self._host.models if isinstance(model, EngineThread)]

    def _thread(self, name: str) -> EngineThread:
        return next(model for model in self._threads() if model.order.name == name)

    def _life(self, name: str) -> _Life:
        life = self._lives.get(name)
        if life is None:
            life = self._lives[name] = _Life(used_ns=time.monotonic_ns())
        return life


async def _learn(pace: Pace, samples: list[StepSample]) -> None:
    """Fit the reference in a thread: it takes tens of milliseconds."""
    pace.adopt(await asyncio.to_thread(fit, samples))


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
