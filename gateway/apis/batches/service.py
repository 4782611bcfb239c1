"""Files and batches as one part of the data plane: its paths, and what works off batches behind them."""

from collections.abc import Collection
from typing import Final

from gateway.apis.batches.kept_batches import KeptBatches
from gateway.apis.batches.message_batches import MessageBatches
from gateway.apis.batches.resource import BatchesResource, batched_operations
from gateway.apis.batches.runner import BatchRunner, RunnerState
from gateway.apis.batches.settings import BatchSettings
from gateway.apis.files.kept_files import KeptFiles
from gateway.apis.files.kept_objects import KeptObjects
from gateway.apis.files.resource import FilesResource
from gateway.apis.operations import Operation
from gateway.apis.resource import Resource
from gateway.config.directory import Directory
from gateway.request.clock import Clock
from gateway.request.dispatch import Dispatcher

_MESSAGES: Final = "/v1/messages"


class BatchService:
    """`resources` answer the paths. Nothing runs, and no database is opened, before there may be something to do."""

    def __init__(
        self,
        settings: BatchSettings,
        kept: KeptObjects,
        operations: Collection[Operation],
        dispatcher: Dispatcher,
        directory: Directory,
        clock: Clock,
    ) -> None:
        files, batches = KeptFiles(kept), KeptBatches(kept)
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
