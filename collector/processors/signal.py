"""Common parts of signal processors: parse requests and split them into batches."""

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from backends.telemetry.otlp import string_attribute
from collector.processors.attributes import tenant_in
from collector.processors.salvage import Unframed, class_of_field, salvage
from collector.rows import Processed
from collector.spool import Signal, SpooledBatch
from contracts.errors import InvalidRequest
from contracts.recording.names import BATCH_ID

M = TypeVar("M", bound=Message)
_PARTS: Final = 1  # number of the field with a request's parts, in all signals
_HEXADECIMAL_IDS: Final = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True, slots=True)
class Survey:
    """Counts at receipt: records in a request, and those that can never be stored."""

    records: int
    unreadable: int


class SignalProcessor(ABC, Generic[M]):
    """Base class: parses and processes the export requests of one signal (logs, traces or metrics).

    Field names: `parts` of the items with a resource, `scopes` below these, `records` below the scopes.
    """

    signal: ClassVar[Signal]
    parts: ClassVar[str]
    scopes: ClassVar[str]
    records: ClassVar[str]
    request: type[M]

    @abstractmethod
    def survey(self, message: M) -> Survey:
        """Count the records of a request, without decoding packed ones."""

    @abstractmethod
    def process(self, batch: SpooledBatch) -> Processed:
        """Return the rows of a batch. Deterministic: the same batch gives the same rows, also after a crash."""

    @abstractmethod
    def response(self, rejected: int, reason: str) -> Message:
        """Return the OTLP response, with a partial success if records were rejected."""

    def is_ours(self, record: Any) -> bool:
        """Return whether a record is a gateway's packed record, which is never sampled, limited or changed."""
        return False

    def size(self, record: Any) -> int:
        """Return how many records a message counts as in the response (a metric counts its points)."""
        return 1

    def by_tenant(self, record: Any, own: str) -> dict[str, Any]:
        """Return a third-party record by the tenant that it names; by `own` if it names none."""
        return {tenant_in(record.attributes) or own: record}

    def foreign_records(self, part: Any) -> int:
        """Return the number of third-party records in a part."""
        return sum(self.size(record) for record in self.records_of(part) if not self.is_ours(record))

    def records_of(self, part: Any) -> Iterator[Any]:
        """Yield the records of all scopes of a part."""
        for scope in getattr(part, self.scopes):
            yield from getattr(scope, self.records)

    def drop_foreign(self, part: Any) -> int:
        """Remove the third-party records from a part, and return their number."""
        dropped = self.foreign_records(part)
        for scope in getattr(part, self.scopes):
            records = getattr(scope, self.records)
            ours = [record for record in records if self.is_ours(record)]
            if len(ours) < len(records):
                del records[:]
                records.extend(ours)
        return dropped

    def salvage(self, body: bytes) -> tuple[bytes, int]:
        """Return a body without its unreadable records, and their number. Raises InvalidRequest if none is left."""
        try:
            sound, lost = salvage(body, class_of_field(self.request, _PARTS))
        except Unframed as error:
            raise self._malformed(body) from error
        if self.survey(self.parse(sound)).records == 0:
            raise self._malformed(body)
        return sound, lost

    def _malformed(self, body: bytes) -> InvalidRequest:
        return InvalidRequest(
            f"the body of {len(body)} bytes is not a protobuf {self.request.DESCRIPTOR.name}",
            code="malformed_protobuf",
        )

    def parse(self, body: bytes) -> M:
        """Parse a protobuf body. Raises InvalidRequest."""
        try:
            return self.request.FromString(body)
        except DecodeError as error:
            raise self._malformed(body) from error

    def parse_json(self, body: bytes) -> M:
        """Parse an OTLP/JSON body (protobuf JSON with hexadecimal ids). Raises InvalidRequest."""
        try:
            found = json.loads(body, object_hook=_ids_to_base64)
            if not isinstance(found, dict):
                raise ValueError("not an object")
            return json_format.ParseDict(found, self.request(), ignore_unknown_fields=True)
        except (ValueError, json_format.ParseError, RecursionError, OverflowError, SystemError) as error:
            # Infinity in place of an enumeration raises OverflowError, half a surrogate pair SystemError.
            raise InvalidRequest(
                f"the body of {len(body)} bytes is not an OTLP/JSON {self.request.DESCRIPTOR.name}",
                code="malformed_json",
            ) from error

    def split(self, message: M, body: bytes) -> list[tuple[str, bytes]]:
        """Split a request by the senders' batch ids; return (id or "", body) of each, in order of appearance.

        A gateway's request is one batch; an upstream collector may have merged several senders' requests. Parts
        without records are omitted.
        """
        batches: dict[str, list[Any]] = {}
        given = getattr(message, self.parts)
        kept = 0
        for part in given:
            if any(len(getattr(scope, self.records)) for scope in getattr(part, self.scopes)):
                batches.setdefault(string_attribute(part.resource, BATCH_ID), []).append(part)
                kept += 1
        if len(batches) == 1 and kept == len(given):
            return [(next(iter(batches)), body)]
        return [(own, self.request(**{self.parts: parts}).SerializeToString()) for own, parts in batches.items()]


def _ids_to_base64(found: dict[str, Any]) -> dict[str, Any]:
    for name in _HEXADECIMAL_IDS:
        if isinstance(found.get(name), str):
            found[name] = base64.b64encode(bytes.fromhex(found[name])).decode()
    return found
