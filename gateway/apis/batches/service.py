"""Files and batches as one part of the data plane: their paths, and the runner that processes batches."""

from collections.abc import Collection
from typing import Final

from gateway.apis.batches.lazy_batch_store import LazyBatchStore
from gateway.apis.batches.message_batches import MessageBatches
from gateway.apis.batches.resource import BatchesResource, batched_operations
from gateway.apis.batches.runner import BatchRunner, RunnerState
from gateway.apis.batches.settings import BatchSettings
from gateway.apis.files.lazy_file_store import LazyFileStore
from gateway.apis.files.lazy_objects_database import LazyObjectsDatabase
from gateway.apis.files.resource import FilesResource
from gateway.apis.operations import Operation
from gateway.apis.resource import Resource
from gateway.config.directory import Directory
from gateway.request.clock import Clock
from gateway.request.dispatch import Dispatcher

_MESSAGES: Final = "/v1/messages"


class BatchService:
    """`resources` answer the paths. The runner starts, and the database is opened, only if there may be batches."""

    def __init__(
        self,
        settings: BatchSettings,
        kept: LazyObjectsDatabase,
        operations: Collection[Operation],
        dispatcher: Dispatcher,
        directory: Directory,
        clock: Clock,
    ) -> None:
        files, batches = LazyFileStore(kept), LazyBatchStore(kept)
        batched = batched_operations(operations)
        self._kept = kept
        self._is_shared = settings.is_shared
        self._runner = BatchRunner(settings.runner, batches, files, dispatcher, directory, batched, clock)
        resource = BatchesResource(batches, files, batched, clock, self._runner)
        self.resources: tuple[Resource, ...] = (
            FilesResource(files, settings.files, clock, self._runner.start),
            resource,
            MessageBatches(resource, batches, files, settings.files, batched[_MESSAGES], clock),
        )

    @property
    def state(self) -> RunnerState:
        """Return how many batches and lines are in progress."""
        return self._runner.state

    def start(self) -> None:
        """Continue earlier batches, if there may be any."""
        if self._is_shared or self._kept.holds_anything:
            self._runner.start()

    async def stop(self, within_seconds: float) -> None:
        """Let the lines in progress finish within the time limit; the rest continues at the next start."""
        await self._runner.stop(within_seconds)
