"""A cardinality limit for series and names: those beyond it go to an overflow series, as in OpenTelemetry's SDKs."""

from collections.abc import Mapping
from typing import Final

import msgspec

from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.recording.names import LOGS, METRICS, TRACES
from contracts.recording.telemetry import LogRow, MetricRow, SpanRow

OVERFLOW_ATTRIBUTE: Final = "otel.metric.overflow"
OVERFLOW: Final = "overflow"
ORIGINAL_NAME: Final = "tollkeeper.original.name"
OVERFLOW_SERIES: Final = "overflow_series"
OVERFLOW_LABEL: Final = "overflow_label"
_WINDOW_NS: Final = 3_600_000_000_000
_OVERFLOWN: Final[Mapping[str, str]] = {OVERFLOW_ATTRIBUTE: "true"}
_MAX_OWNERS: Final = 20_000  # number of (tenant, service, metric) with their own set; beyond it, all series overflow
_MAX_REMEMBERED: Final = 1_000_000  # over all sets, about 110 MB: must stay below the collector's memory limit


class CardinalityLimiter:
    """Limits, per hour of receipt, the distinct series of a tenant's metric and the distinct names of spans and events.

    A series beyond `max_series` loses its attributes except an overflow mark; a span or event beyond `max_names` is
    renamed to "overflow", with its name in an attribute. The same happens to all new ones beyond `max_remembered` over
    all tenants. A batch repeated after a crash may be changed differently, but is stored once because of its id.
    """

    def __init__(self, max_series: int, max_names: int, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._max_series = max_series
        self._max_names = max_names
        self._max_remembered = max_remembered
        self._remembered = 0
        self._window = -1
        self._seen: dict[tuple[str, ...], set[object]] = {}

    def apply(self, processed: Processed, batch: SpooledBatch) -> None:
        """Apply the limits to the rows of a batch."""
        window = batch.received_at_ns // _WINDOW_NS
        if window != self._window:
            self._window, self._seen, self._remembered = window, {}, 0
        for table, fold in ((METRICS, self._metric), (TRACES, self._span), (LOGS, self._log)):
            rows = processed.tables.get(table.name)
            if rows is not None:
                rows.rows[:] = [fold(row, processed) for row in rows.rows]

    def _metric(self, row: MetricRow, processed: Processed) -> MetricRow:
        name = row.name
        if not self._fits(("metric", row.tenant, row.service), name, self._max_names):
            processed.notice([OVERFLOW_LABEL])
            row = msgspec.structs.replace(
                row, name=OVERFLOW, unit="", description="", attributes=dict(_OVERFLOWN, **{ORIGINAL_NAME: name})
            )
        elif not self._fits(
            ("series", row.tenant, row.service, name), hash(frozenset(row.attributes.items())), self._max_series
        ):
            processed.notice([OVERFLOW_SERIES])
            row = msgspec.structs.replace(row, attributes=dict(_OVERFLOWN))
        return row

    def _span(self, row: SpanRow, processed: Processed) -> SpanRow:
        if self._fits(("span", row.tenant, row.service), row.name, self._max_names):
            return row
        processed.notice([OVERFLOW_LABEL])
        return msgspec.structs.replace(row, name=OVERFLOW, attributes={**row.attributes, ORIGINAL_NAME: row.name})

    def _log(self, row: LogRow, processed: Processed) -> LogRow:
        if not row.event_name or self._fits(("event", row.tenant, row.service), row.event_name, self._max_names):
            return row
        processed.notice([OVERFLOW_LABEL])
        return msgspec.structs.replace(
            row, event_name=OVERFLOW, attributes={**row.attributes, ORIGINAL_NAME: row.event_name}
        )

    def _fits(self, owner: tuple[str, ...], value: object, most: int) -> bool:
        seen = self._seen.get(owner)
        if seen is None:
            if len(self._seen) >= _MAX_OWNERS:
                return False
            seen = self._seen[owner] = set()
        if value in seen:
            return True
        if len(seen) >= most or self._remembered >= self._max_remembered:
            return False
        seen.add(value)
        self._remembered += 1
        return True
