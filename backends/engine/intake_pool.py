"""Threads that prepare requests off the event loop: in order within a tenant, in parallel across tenants."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_THREADS: Final = 4


class IntakePool:
    """The thread pool of one model. A grammar that takes seconds to compile delays only its own tenant's requests."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"intake-{name}")
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # tasks by tenant; present while one of its tasks runs

    def submit(self, tenant: str, task: Callable[[], None]) -> None:
        """Run a task after the earlier ones of its tenant."""
        with self._lock:
            waiting = self._waiting.get(tenant)
            if waiting is not None:
                waiting.append(task)
                return
            self._waiting[tenant] = deque()
        self._executor.submit(self._run, tenant, task)

    def shutdown(self, *, wait: bool) -> None:
        """Drop queued tasks; with `wait`, return when running ones have ended."""
        with self._lock:
            for waiting in self._waiting.values():
                waiting.clear()
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def _run(self, tenant: str, task: Callable[[], None]) -> None:
        try:
            task()
        finally:
            self._next(tenant)

    def _next(self, tenant: str) -> None:
        """Queue the tenant's next task after those of other tenants."""
        with self._lock:
            waiting = self._waiting[tenant]
            if not waiting:
                del self._waiting[tenant]
                return
            task = waiting.popleft()
        try:
            self._executor.submit(self._run, tenant, task)
        except RuntimeError:  # the pool was shut down meanwhile
            return
