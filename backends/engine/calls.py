"""Executes control calls of gateways: load and unload models and adapters, sleep, wake, swap, drain, health, stats."""

import asyncio
import logging
import resource
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backends.engine.base import Facts, ModelOrder
from backends.engine.connection import Connection
from backends.engine.engine_thread import EngineThread
from backends.engine.kv_frames import CachedBlocks, cached_blocks, kv_frames
from backends.engine.refusal import call_refusal
from backends.engine.served import Served
from contracts.engine.wire import Answer, Call
from contracts.errors import InvalidRequest, TollkeeperError, Unavailable

if TYPE_CHECKING:
    from backends.engine.host import EngineHost

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.02
_STATS_SECONDS: Final = 5.0  # time limit; the engine answers between two steps unless it is stuck or very slow


class Calls:
    """Runs each call as a task, so that a slow one delays no other. The answer goes to the caller."""

    def __init__(self, host: "EngineHost") -> None:
        self._host = host
        self._started = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, connection: Connection, call: Call) -> None:
        """Start executing a call."""
        verbs: dict[str, Callable[[Call], Awaitable[Facts]]] = {
            "load": self._load,
            "unload": self._unload,
            "load_adapter": self._load_adapter,
            "unload_adapter": self._unload_adapter,
            "drain": self._drain,
            "health": self._health,
            "stats": self._stats,
            "sleep": self._sleep,
            "wake": self._wake,
            "swap": self._swap,
            "kv_blocks": partial(self._kv_blocks, connection),
        }
        task = asyncio.create_task(self._answer(connection, call, verbs[call.verb]), name=f"call-{call.verb}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: Connection, call: Call, verb: Callable[[Call], Awaitable[Facts]]) -> None:
        try:
            answer = Answer(call_id=call.call_id, facts=await verb(call))
        except Exception as error:  # a task must not end without an answer
            if not isinstance(error, TollkeeperError):
                _log.exception("call failed verb=%s model=%s", call.verb, call.model)
            answer = call_refusal(call.call_id, error)
        connection.send(answer)
        connection.flush()

    async def _kv_blocks(self, connection: Connection, call: Call) -> Facts:
        """Return the content of a model's cache, in frames before the answer."""
        held = await self._generating(call).call(cached_blocks)
        assert isinstance(held, CachedBlocks)
        frames = kv_frames(call.model, held)
        for message in frames:
            connection.send(message)
        return {"frames": len(frames)}

    # Models.

    async def _load(self, call: Call) -> Facts:
        """Load a model; answered when it serves. `path` is a directory or hub name; options are as in the settings.

        With the option `gpu_memory_bytes`, its need on each GPU, idle models first make room for it.
        """
        began = time.monotonic()
        needed, options = _memory_option(call)
        await self._host.lifecycle.room_for(call.model, needed)
        model = self._host.models.load(ModelOrder(call.model, call.path, options=options))
        self._host.say_hello()
        while model.state in ("loading", "warming"):
            await asyncio.sleep(_POLL_SECONDS)
        if model.state != "ready":
            raise Unavailable(
                f"model {call.model!r} was not loaded: {model.failure or model.state}", code="load_failed"
            )
        return {"state": model.state, "seconds": time.monotonic() - began}

    async def _unload(self, call: Call) -> Facts:
        """Wait `seconds` for a model's requests, abort the rest, and free its memory."""
        model = self._host.models.get(call.model)
        aborted = await self._empty(model, self._seconds(call))
        if aborted:
            self._host.abort_all(Unavailable(f"model {call.model!r} is being unloaded", code="draining"), model)
            await self._gone(model, self._host.settings.engine_drain_seconds)
        await self._host.models.unload(model)
        self._host.fail_all(Unavailable(f"model {call.model!r} is being unloaded", code="draining"), model)
        self._host.say_hello()
        return {"aborted": aborted}

    async def _sleep(self, call: Call) -> Facts:
        """Put an idle model to sleep, at the option `level` (1 or 2), or as the settings say. Requests wake it."""
        level = call.options.get("level", self._host.settings.engine_sleep_level)
        if level not in (1, 2) or isinstance(level, bool):
            raise InvalidRequest(f"option level is {level!r}; it must be 1 or 2")
        await self._host.lifecycle.sleep(self._generating(call), int(level))
        return {}

    async def _wake(self, call: Call) -> Facts:
        """Wake a sleeping model, or load one that was unloaded because it was idle."""
        return {"seconds": await self._host.lifecycle.ensure_awake(self._generating(call))}

    async def _swap(self, call: Call) -> Facts:
        """Load `path` beside a model and replace the model when the new one works; `seconds` is the old one's drain
        time.

        `gpu_memory_bytes` as for `load`; without it the new one is expected to need as much as the old one.
        """
        seconds = self._seconds(call)
        needed, found = _memory_option(call)
        options = {name: value for name, value in found.items() if name != "seconds"}
        return await self._host.swaps.swap(ModelOrder(call.model, call.path, options=options), seconds, needed)

    async def _load_adapter(self, call: Call) -> Facts:
        """Load the adapter named by the option `adapter` from `path` into a model."""
        thread, adapter = self._generating(call), self._adapter(call)
        await self._host.lifecycle.ensure_awake(thread)
        await thread.call(lambda engine: engine.load_adapter(adapter, Path(call.path)))
        thread.note_adapters({**dict(thread.order.adapters), adapter: Path(call.path)})
        await thread.refresh()
        return {"adapters": len(thread.hello.adapters)}

    async def _unload_adapter(self, call: Call) -> Facts:
        thread, adapter = self._generating(call), self._adapter(call)
        await self._host.lifecycle.ensure_awake(thread)
        await thread.call(lambda engine: engine.unload_adapter(adapter))
        thread.note_adapters({name: path for name, path in thread.order.adapters if name != adapter})
        await thread.refresh()
        return {"adapters": len(thread.hello.adapters)}

    async def _drain(self, call: Call) -> Facts:
        """Refuse new requests, of one model or of all, and wait `seconds` for those in progress. Aborts none."""
        if call.model:
            return {"remaining": await self._empty(self._host.models.get(call.model), self._seconds(call))}
        self._host.drain()
        deadline = time.monotonic() + self._seconds(call)
        while self._host.requests and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return {"remaining": self._host.requests}

    # Questions.

    async def _health(self, call: Call) -> Facts:
        """Return the health of one model, or all, without asking the engines, which may be stuck."""
        models = [self._host.models.get(call.model)] if call.model else list(self._host.models)
        facts: Facts = {
            "healthy": all(model.state == "ready" for model in models) and not self._host.is_draining,
            "draining": self._host.is_draining,
            "requests": self._host.requests,
            "connections": self._host.connections,
            "uptime_seconds": time.monotonic() - self._started,
            "steps_pending": self._host.outbox.pending,
            "steps_lost": self._host.outbox.lost,
        }
        for model in models:
            for name, value in model.health().items():
                facts[name if call.model else f"{model.order.name}.{name}"] = value
        return facts

    async def _stats(self, call: Call) -> Facts:
        """Return the host's counters and those of one model or all."""
        counters = self._host.counters
        facts: Facts = {
            "requests_taken": counters.requests,
            "requests_refused": counters.refused,
            "requests_orphaned": counters.orphaned,
            "requests_choked": counters.choked,
            "rss_bytes": _rss_bytes(),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            **self._host.devices.facts(),
        }
        for model in [self._host.models.get(call.model)] if call.model else list(self._host.models):
            for name, value in (await self._stats_of(model)).items():
                facts[name if call.model else f"{model.order.name}.{name}"] = value
        return facts

    async def _stats_of(self, model: Served) -> Facts:
        if not isinstance(model, EngineThread) or model.state not in ("ready", "draining"):
            return model.health()
        life = self._host.lifecycle.facts(model)
        if not model.is_started:
            return model.health() | life
        try:
            found = await asyncio.wait_for(model.call(lambda engine: engine.stats()), _STATS_SECONDS)
        except TimeoutError:
            return model.health() | life
        assert isinstance(found, dict)
        return {**found, **life, "is_awake": model.is_awake}

    # Parts.

    async def _empty(self, model: Served, seconds: float) -> int:
        """Wait for a model's requests to finish. Return how many did not within `seconds`."""
        if model.state == "ready":
            model.set_state("draining")
        await self._gone(model, seconds)
        return len(self._host.requests_of(model))

    async def _gone(self, model: Served, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._host.requests_of(model) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)

    def _seconds(self, call: Call) -> float:
        seconds = call.options.get("seconds", self._host.settings.engine_drain_seconds)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 86_400:
            raise InvalidRequest(f"option seconds is {seconds!r}; it must be a number from 0 to 86400")
        return seconds

    def _adapter(self, call: Call) -> str:
        adapter = call.options.get("adapter")
        if not isinstance(adapter, str) or not adapter:
            raise InvalidRequest(f"{call.verb} needs the adapter's name as the option `adapter`")
        return adapter

    def _generating(self, call: Call) -> EngineThread:
        model = self._host.models.find(call.model)
        if not isinstance(model, EngineThread):
            raise InvalidRequest(f"model {call.model!r} embeds; it takes no adapters", param="model")
        return model


def _memory_option(call: Call) -> tuple[int | None, Facts]:
    """Separate the option `gpu_memory_bytes` from a call's other options. Raises InvalidRequest if it is not a size."""
    options = dict(call.options)
    needed = options.pop("gpu_memory_bytes", None)
    if needed is None:
        return None, options
    if isinstance(needed, bool) or not isinstance(needed, int) or needed <= 0:
        raise InvalidRequest(f"option gpu_memory_bytes is {needed!r}; it must be a whole number of bytes above 0")
    return needed, options


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
