"""Builds the forwarders that the settings configure."""

import random
from pathlib import Path
from typing import Final

from backends.segment_log.segments import SegmentLog
from collector.counters import Counters
from collector.exporters.backoff import Backoff
from collector.forwarding.forwarder import Destination, Forwarder
from collector.receiving import make_processors
from collector.settings import CollectorSettings
from collector.spool import Spool
from contracts.recording.ids import uuid7

_WRITER: Final = "writer"


def make_forwarders(settings: CollectorSettings, counters: Counters) -> tuple[Forwarder, ...]:
    """Return the configured forwarders. Raises ConfigurationError if a destination's address is invalid."""
    destinations: list[Destination] = []
    if settings.forward_otlp:
        # Imported here, as below: most collectors have no forwarder
        from collector.forwarding.otlp import OtlpDestination

        destinations.append(OtlpDestination(settings.forward_otlp, settings.forward_headers))
    if settings.forward_nats:
        from collector.forwarding.jetstream import JetStreamDestination

        destinations.append(JetStreamDestination(settings.forward_nats, settings.forward_nats_subject))
    if settings.forward_parquet:
        destinations.append(_make_parquet(settings))
    if not destinations:
        return ()
    from collector.forwarding.redacted_messages import RedactedMessages

    clean = RedactedMessages(make_processors(), settings.redacted, keeps_prompts=settings.forward_prompts).clean
    return tuple(
        Forwarder(_spool(settings, one.name), one, counters, Backoff(random.Random()), clean=clean)
        for one in destinations
    )


def _make_parquet(settings: CollectorSettings) -> Destination:
    from backends.telemetry.parquet_files import open_parquet_files
    from collector.forwarding.parquet import ParquetDestination

    processors = make_processors()
    return ParquetDestination(
        open_parquet_files(settings.forward_parquet),
        lambda batch: processors[batch.signal].process(batch),
        _writer(_directory(settings, ParquetDestination.name)),
        tables=settings.parquet_tables,
        every_seconds=settings.forward_parquet_seconds,
    )


def _directory(settings: CollectorSettings, name: str) -> Path:
    return settings.data / f"forward-{name}"


def _spool(settings: CollectorSettings, name: str) -> Spool:
    log = SegmentLog(_directory(settings, name), max_bytes=settings.forward_max_bytes, fsync=settings.spool_fsync)
    return Spool(log)


def _writer(directory: Path) -> str:
    """Return this data directory's writer id for file names, created at the first start."""
    path = directory / _WRITER
    directory.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(uuid7(0).hex[-12:])
    return path.read_text().strip()
