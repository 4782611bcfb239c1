"""Replaces a served model by another, or by the same one with other settings, without interruption.

The new model is loaded beside the old one, computes the old one's most frequent prompt prefixes into its cache and must
answer a test request. Only then does it get the name; the old one finishes its requests and ends. If a step before that
fails, the old one stays.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from backends.engine.base import Facts, ModelOrder
from backends.engine.engine_thread import EngineThread, Output
from backends.engine.hot_prefixes import Prefix
from contracts.engine.wire import Finished, Sampling, Submit
from contracts.errors import Conflict, Unavailable
from contracts.recording.ids import uuid7

if TYPE_CHECKING:
    from backends.engine.host import EngineHost

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.02
_PREFIXES: Final = 8
_PROBE_TOKENS: Final = 4
_PROBE_SECONDS: Final = 60.0


class Swaps:
    """Replaces models of an engine host, one swap of a model at a time. Each new model first answers a test request."""

    def __init__(self, host: "EngineHost") -> None:
        self._host = host
        self._under_way: set[str] = set()
        self._probes: dict[bytes, asyncio.Future[Finished]] = {}

    def saw(self, output: Output) -> None:
        """Record which test requests of a model swap have ended, according to an engine's output."""
        if not self._probes:
            return
        for event in output.events:
            if isinstance(event, Finished) and (waiting := self._probes.get(event.request_id)) and not waiting.done():
                waiting.set_result(event)

    async def swap(self, order: ModelOrder, drain_seconds: float, needed_bytes: int | None = None) -> Facts:
        """Load a model and replace the one with its name. Return the seconds of each phase.

        `needed_bytes` is its need on each GPU; by default the old one's.

        Raises UnknownModel, Conflict while another change of it is in progress, and Unavailable with code `swap_failed`
        and the reason; the old model then stays.
        """
        old = self._host.models.get(order.name)
        if not isinstance(old, EngineThread) or old.state != "ready":
            raise Conflict(f"model {order.name!r} is {old.state}; only a ready one that generates can be changed")
        if order.name in self._under_way:
            raise Conflict(f"model {order.name!r} is being changed already")
        self._under_way.add(order.name)
        try:
            await self._host.lifecycle.ensure_awake(old)
            await self._host.lifecycle.room_for(order.name, needed_bytes, beside=old)
            return await self._swap(old, replace(order, adapters=old.order.adapters), drain_seconds)
        finally:
            self._under_way.discard(order.name)

    async def _swap(self, old: EngineThread, order: ModelOrder, drain_seconds: float) -> Facts:
        began = time.monotonic()
        new = self._host.models.beside(order)
        new.start()
        try:
            warmed = await self._prepare(old, new)
        except BaseException as error:
            new.close()
            await new.closed
            if isinstance(error, Exception):
                reason = getattr(error, "message", type(error).__name__)
                raise Unavailable(
                    f"model {order.name!r} was not changed: {reason}; the old one serves on", code="swap_failed"
                ) from error
            raise
        loaded = time.monotonic()
        self._host.models.replace(old, new)
        self._host.say_hello()
        _log.info("model changed model=%s prefixes=%d seconds=%.2f", order.name, warmed, loaded - began)
        aborted = await self._end(old, drain_seconds)
        return {
            "ready_seconds": loaded - began,
            "drain_seconds": time.monotonic() - loaded,
            "prefixes_warmed": warmed,
            "aborted": aborted,
        }

    async def _prepare(self, old: EngineThread, new: EngineThread) -> int:
        """Wait until the new model is loaded, warm up its cache, and test it. Return the number of prefixes in its
        cache.
        """
        while new.state not in ("ready", "failed"):
            await asyncio.sleep(_POLL_SECONDS)
        if new.state == "failed":
            raise Unavailable(new.failure)
        prefixes: list[Prefix] = []
        if new.hello.tokenizer_hash == old.hello.tokenizer_hash:  # with another tokenizer, token ids differ
            prefixes = self._host.lifecycle.hot_prefixes(old.order.name).hottest(_PREFIXES)
        known = [one for one in prefixes if not one.adapter or one.adapter in new.hello.adapters]
        warmed = 0
        for prefix in known:
            end = await self._run(new, list(prefix.token_ids), prefix.adapter, prefix.cache_salt)
            warmed += end.finish_reason != "error"
        end = await self._run(new, [0] * 8)
        if end.finish_reason == "error":
            raise Unavailable(f"its probe failed: {end.error_message}")
        return warmed

    async def _run(
        self, model: EngineThread, token_ids: list[int], adapter: str = "", cache_salt: str = ""
    ) -> Finished:
        """Make a model compute a prompt and a few tokens. Raises Unavailable if it does not finish in time."""
        request_id = uuid7(time.time_ns()).bytes
        end: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._probes[request_id] = end
        sampling = Sampling(max_tokens=_PROBE_TOKENS, temperature=0.0, ignore_eos=True)
        submit = Submit(
            request_id=request_id,
            model=model.order.name,
            token_ids=token_ids,
            sampling=sampling,
            adapter=adapter,
            cache_salt=cache_salt,
            booked_as=bytes(16),
        )
        try:
            model.submit(submit)
            await _until(lambda: end.done() or model.state == "failed", _PROBE_SECONDS)
            if not end.done():
                raise Unavailable(model.failure or f"it did not answer a probe within {_PROBE_SECONDS:g} seconds")
            return end.result()
        finally:
            self._probes.pop(request_id, None)

    async def _end(self, old: EngineThread, drain_seconds: float) -> int:
        """Let the old model finish its requests, abort the rest, and free its memory. Return the number of aborted
        requests.
        """
        await _until(lambda: not self._host.requests_of(old), drain_seconds)
        left = len(self._host.requests_of(old))
        error = Unavailable(f"model {old.order.name!r} was changed for another", code="draining")
        if left:
            self._host.abort_all(error, old)
            await _until(lambda: not self._host.requests_of(old), self._host.settings.engine_drain_seconds)
        old.close()
        await old.closed
        self._host.fail_all(error, old)
        return left


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
