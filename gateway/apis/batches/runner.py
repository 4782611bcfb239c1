"""Processes batches in the background: takes unclaimed batches under a lease, and deletes expired files.

Several gateways may share one database: each batch belongs to one gateway at a time, and to another one if the lease is
not renewed.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from contracts.errors import Shutdown, TollkeeperError
from contracts.objects.batches import Batch, Lease, LeaseLost
from gateway.apis.batches.batch_run import BatchDependencies, BatchRun
from gateway.apis.batches.lazy_batch_store import LazyBatchStore
from gateway.apis.batches.settings import RunnerSettings
from gateway.apis.files.lazy_file_store import LazyFileStore
from gateway.apis.operations import Operation
from gateway.config.directory import Directory
from gateway.request.clock import Clock
from gateway.request.dispatch import Dispatcher

_log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 300.0
_AGAIN_SECONDS: Final = 5.0  # after a batch could not be gone on with
_MAX_RUNNING: Final = 16


@dataclass(frozen=True, slots=True)
class RunnerState:
    """How many batches are being processed, and how many of their lines are in progress or waiting."""

    batches: int = 0
    serving: int = 0
    waiting: int = 0
    is_broken: bool = False  # the database does not answer


class BatchRunner:
    """Processes batches from `start`, or the first `wake`, to `stop`."""

    def __init__(
        self,
        settings: RunnerSettings,
        kept: LazyBatchStore,
        files: LazyFileStore,
        dispatcher: Dispatcher,
        directory: Directory,
        operations: Mapping[str, Operation],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._kept = kept
        self._files = files
        self._dispatcher = dispatcher
        self._directory = directory
        self._operations = operations
        self._clock = clock
        self._owner = f"{settings.place}#{os.urandom(8).hex()}"
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._shop: BatchDependencies | None = None
        self._runs: dict[str, tuple[BatchRun, asyncio.Task[None]]] = {}
        self._renew_at_ns = 0
        self._sweep_at_ns = 0
        self._is_broken = False
        self._is_stopping = False

    @property
    def state(self) -> RunnerState:
        """Return the number of batches and lines in progress."""
        runs = [run for run, _ in self._runs.values()]
        serving = sum(run.serving for run in runs)
        waiting = sum(run.waiting for run in runs) - serving
        return RunnerState(len(runs), serving, max(waiting, 0), self._is_broken)

    def start(self) -> None:
        """Start looking for batches."""
        if self._task is None and not self._is_stopping:
            self._task = asyncio.create_task(self._run(), name="batches")

    def wake(self) -> None:
        """Search for batches now."""
        self.start()
        self._woken.set()

    def lease(self) -> Lease:
        """Return a lease of this process on a batch, starting now."""
        return Lease(self._owner, self._clock.wall_ns() + round(self._settings.lease_seconds * 1e9))

    async def stop(self, within_seconds: float) -> None:
        """Start no new lines, wait up to the grace period, then release the leases."""
        self._is_stopping = True
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for run, _ in self._runs.values():
            run.leave()
        tasks = [task for _, task in self._runs.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=within_seconds)
        for run, _ in self._runs.values():
            run.abort(Shutdown("the gateway was stopped; the batch's next run serves the line again"))
        if tasks:
            await asyncio.wait(tasks, timeout=within_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._shop is not None:
            with contextlib.suppress(TollkeeperError):  # the leases end by themselves
                await self._shop.work.release_all()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._look()
                self._is_broken = False
            except TollkeeperError as error:
                if not self._is_broken:
                    _log.warning("searching for batches failed", extra={"reason": error.message})
                self._is_broken = True
            except Exception:  # the edge of the looking: were it to end, no batch would be gone on with
                _log.exception("searching for batches failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.look_seconds):
                    await self._woken.wait()

    async def _look(self) -> None:
        shop = self._shop or await self._open()
        now_ns = self._clock.monotonic_ns()
        if self._runs and now_ns >= self._renew_at_ns:
            self._renew_at_ns = now_ns + round(self._settings.lease_seconds * 1e9 / 3)
            await shop.work.renew(self._runs.keys(), self.lease().until_ns)
        held = await shop.work.held() if self._runs else {}
        for batch_id, (run, task) in self._runs.items():
            if task.done():
                continue
            if batch_id not in held:
                task.cancel()
            elif held[batch_id].state == "cancelling":
                run.cancel()
        await self._claim(shop)
        if now_ns >= self._sweep_at_ns:
            # A little at a time: leases must be renewed between.
            if not await shop.files.sweep(self._clock.wall_ns() // 1_000_000_000):
                self._sweep_at_ns = now_ns + round(_SWEEP_SECONDS * 1e9)

    async def _open(self) -> BatchDependencies:
        work = await self._kept.work(self._owner)
        await work.take_over_former()
        self._shop = BatchDependencies(
            work,
            await self._files.store(),
            self._dispatcher,
            self._directory,
            self._operations,
            self._clock,
            self._settings.concurrency,
            asyncio.Semaphore(self._settings.concurrency),
        )
        return self._shop

    async def _claim(self, shop: BatchDependencies) -> None:
        while len(self._runs) < _MAX_RUNNING:
            running = {batch_id: run.batch.owner.tenant for batch_id, (run, _) in self._runs.items()}
            batch = await shop.work.claim(self._clock.wall_ns(), self.lease().until_ns, running)
            if batch is None:
                return
            run = BatchRun(batch, shop)
            self._runs[batch.id] = (run, asyncio.create_task(self._run_batch(run, shop), name=batch.id))

    async def _run_batch(self, run: BatchRun, shop: BatchDependencies) -> None:
        batch: Batch = run.batch
        try:
            await run.run()
            _log.info("batch left" if self._is_stopping else "batch ended", extra={"batch": batch.id})
        except LeaseLost:
            _log.warning("batch taken over by another gateway", extra={"batch": batch.id})
        except asyncio.CancelledError:
            if not self._is_stopping:  # its lease is gone
                _log.warning("batch taken over by another gateway", extra={"batch": batch.id})
            raise
        except Exception:  # the edge of one batch: the others go on, and so does this one after a while
            _log.exception("continuing a batch failed", extra={"batch": batch.id})
            await asyncio.sleep(_AGAIN_SECONDS)
            with contextlib.suppress(TollkeeperError):
                await shop.work.release(batch.id)
        finally:
            if not self._is_stopping:
                del self._runs[batch.id]
                self._woken.set()
