"""Receives measurements from the workers of a vLLM, builds step records, and ships them to the collector through a
journal.
"""

import asyncio
import contextlib
import logging
import signal
import time
from typing import Final

from backends.engine.step_book import StepBook
from backends.engine.vllm_engine.metering.meter import MeterOptions, VllmMeter
from contracts.recording.ids import uuid7
from contracts.recording.records import encode_record
from gateway.observability.sidecar.settings import SidecarSettings
from gateway.records.engine_records import JournalledEngineRecords
from gateway.records.journal import Journal
from gateway.records.shipper import Shipper

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
_FLUSH_SECONDS: Final = 2.0


class SidecarService:
    """The meter of one vLLM, and the shipping of its records. Raises ConfigurationError if socket or directory is
    unusable.
    """

    def __init__(self, settings: SidecarSettings) -> None:
        # A name of each start's own: numbers of an engine's records have no holes.
        engine = f"{settings.meter_replica or 'vllm'}/{uuid7(time.time_ns()).hex[-12:]}"
        book = StepBook(engine, settings.meter_model, settings.meter_replica, device="")
        options = MeterOptions(
            settings.meter_model,
            ranks=settings.meter_ranks,
            block_size=settings.meter_block_size,
            devices=settings.devices,
            path=settings.meter_socket,
        )
        folder = settings.data / "journal"
        self._journal = Journal(folder, max_bytes=settings.journal_max_bytes, when_full="drop")
        self._records = JournalledEngineRecords(self._journal)
        self._shipper = Shipper(
            self._journal, folder, settings.collector_url, lambda: uuid7(time.time_ns()), settings.record_key
        )
        self.meter = VllmMeter(book, options)

    async def run(self) -> None:
        """Receive measurements and ship records until cancelled. Raises the error of either task."""
        shipping = asyncio.create_task(self._shipper.run(), name="shipper")
        _log.info("meter sidecar ready", extra={"socket": str(self.meter.socket_path)})
        try:
            while True:
                if shipping.done():
                    shipping.result()
                self.look()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)

    def look(self) -> None:
        """Read the workers' measurements, and write the resulting records to the journal. Records that do not fit are
        counted.
        """
        self.meter.collect()
        self._journal_steps(is_idle=self.meter.is_quiet)

    async def stop(self) -> None:
        """Record the rest, ship what can be shipped, and remove the socket."""
        self.meter.close()
        self._journal_steps(is_idle=False)
        await self._shipper.flush(_FLUSH_SECONDS)
        self._journal.close()

    def _journal_steps(self, *, is_idle: bool) -> None:
        records = self.meter.take(idle=is_idle, facts=None)
        if records and not self._records.take_steps([encode_record(record) for record in records]):
            _log.warning("step records dropped", extra={"count": len(records)})


async def serve(service: SidecarService) -> None:
    """Serve until SIGTERM or SIGINT. Raises the error that ends the service earlier."""
    running = asyncio.create_task(service.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        await service.stop()


def run(settings: SidecarSettings) -> None:
    """Run the process. Raises ConfigurationError if it cannot start."""
    asyncio.run(serve(SidecarService(settings)))
