"""Limit the bytes of large bodies that are parsed and encoded at once, in total and per tenant."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from backends.processes.running_time import RunningTimeout
from contracts.errors import LimitExceeded, Unavailable

# Larger bodies are queued and parsed in a thread. Smaller ones are parsed within a few milliseconds.
LARGE_BODY_BYTES: Final = 256 * 1024
_WAITING: Final = 4  # the queue may have this many times the limit
_RETRY_SECONDS: Final = 1.0

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class RoomBounds:
    """Maximum bytes processed at once in total and per tenant, and the maximum time in the queue in seconds."""

    most_bytes: int = 32 << 20
    tenant_bytes: int = 16 << 20
    wait_seconds: float = 10.0


@dataclass(slots=True, eq=False)
class _Waiting:
    tenant: str
    size: int
    let_in: "asyncio.Future[None]"


class EncodingRoom:
    """Queues work on large bodies, with limits on their total bytes. A body larger than a limit counts as the limit."""

    def __init__(self, bounds: RoomBounds | None = None) -> None:
        self._bounds = bounds or RoomBounds()
        self._used = 0
        self._by_tenant: dict[str, int] = {}
        self._waiting: list[_Waiting] = []
        self._running: set[asyncio.Future[Any]] = set()

    async def run(
        self, tenant: str, size: int, work: Callable[[], Awaitable[ResultT]], *, is_parsed: bool = False
    ) -> ResultT:
        """Run `work` on a body of `size` bytes when the limits allow it. Bodies that are already parsed (`is_parsed`)
        go first.

        The bytes count until the work ends, even if the caller is cancelled, because a thread cannot be stopped. Raises
        LimitExceeded or Unavailable if the queue is full or the wait too long.
        """
        if size <= LARGE_BODY_BYTES:
            return await work()
        size = min(size, self._bounds.tenant_bytes, self._bounds.most_bytes)
        await self._enter(tenant, size, is_parsed=is_parsed)
        task: asyncio.Future[ResultT] = asyncio.ensure_future(work())
        self._running.add(task)
        task.add_done_callback(partial(self._leave, tenant, size))
        try:
            return await asyncio.shield(task)
        finally:
            # The traceback of the task's error refers to this frame; that cycle would keep the body in memory.
            del task

    async def _enter(self, tenant: str, size: int, *, is_parsed: bool) -> None:
        if not self._waiting and self._has_room(tenant, size):
            self._take(tenant, size)
            return
        if not is_parsed:  # a parsed body is in memory already, so refusing it would save nothing
            self._refuse_crowd(tenant, size)
        waiting = _Waiting(tenant, size, asyncio.get_running_loop().create_future())
        self._waiting.insert(0 if is_parsed else len(self._waiting), waiting)
        self._let_in()
        try:
            async with RunningTimeout(self._bounds.wait_seconds):
                await waiting.let_in
        except TimeoutError:
            if not waiting.let_in.done() or waiting.let_in.cancelled():
                raise self._refusal(tenant) from None
        except asyncio.CancelledError:
            if waiting.let_in.done() and not waiting.let_in.cancelled():
                self._give_back(tenant, size)
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._let_in()

    def _refuse_crowd(self, tenant: str, size: int) -> None:
        own = sum(one.size for one in self._waiting if one.tenant == tenant)
        if own + size > _WAITING * self._bounds.tenant_bytes:
            raise self._refusal(tenant, is_own=True)
        if sum(one.size for one in self._waiting) + size > _WAITING * self._bounds.most_bytes:
            raise self._refusal(tenant)

    def _refusal(self, tenant: str, *, is_own: bool = False) -> LimitExceeded | Unavailable:
        if is_own or self._by_tenant.get(tenant, 0) >= self._bounds.tenant_bytes // 2:
            return LimitExceeded(
                f"requests of this tenant larger than {LARGE_BODY_BYTES} bytes fill the "
                f"{self._bounds.tenant_bytes} bytes that may be encoded at once, which "
                "TOLLKEEPER_ENCODING_TENANT_MAX_BYTES sets; send fewer of them at the same time",
                code="too_many_large_requests",
                retry_after_seconds=_RETRY_SECONDS,
            )
        return Unavailable(
            f"requests larger than {LARGE_BODY_BYTES} bytes fill the {self._bounds.most_bytes} bytes that the gateway "
            "encodes at once, which TOLLKEEPER_ENCODING_MAX_BYTES sets; send the request again later",
            code="overloaded",
            retry_after_seconds=_RETRY_SECONDS,
        )

    def _has_room(self, tenant: str, size: int) -> bool:
        is_within = self._by_tenant.get(tenant, 0) + size <= self._bounds.tenant_bytes
        return is_within and self._used + size <= self._bounds.most_bytes

    def _take(self, tenant: str, size: int) -> None:
        self._used += size
        self._by_tenant[tenant] = self._by_tenant.get(tenant, 0) + size

    def _leave(self, tenant: str, size: int, task: "asyncio.Future[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, in case the caller was cancelled
        self._give_back(tenant, size)

    def _give_back(self, tenant: str, size: int) -> None:
        self._used -= size
        left = self._by_tenant.pop(tenant) - size
        if left:
            self._by_tenant[tenant] = left
        self._let_in()

    def _let_in(self) -> None:
        """Start queued work in order as far as the limits allow. A tenant at its limit does not delay others."""
        for waiting in tuple(self._waiting):
            if self._used + waiting.size > self._bounds.most_bytes:
                return
            if self._has_room(waiting.tenant, waiting.size) and not waiting.let_in.done():
                self._waiting.remove(waiting)
                self._take(waiting.tenant, waiting.size)
                waiting.let_in.set_result(None)
