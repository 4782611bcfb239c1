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
_PARTS: Final = 1  # the field of every request's parts
_HEXADECIMAL_IDS: Final = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True, slots=True)
class Survey:
    """What can be told of a request at receipt: how many records, and how many of them will never be rows."""

    records: int
    unreadable: int


class SignalProcessor(ABC, Generic[M]):
    """Reads one signal's export requests.

    `parts` names the field whose items have a resource, `scopes` the one below, `records` the one that has the records.
    """

    signal: ClassVar[Signal]
    parts: ClassVar[str]
    scopes: ClassVar[str]
    records: ClassVar[str]
    request: type[M]

    @abstractmethod
    def survey(self, message: M) -> Survey:
        """Judge a request cheaply, without decoding what is packed in it."""

    @abstractmethod
    def process(self, batch: SpooledBatch) -> Processed:
        """Create rows of a batch. Pure: the same batch gives the same rows, also after a crash."""

    @abstractmethod
    def response(self, rejected: int, reason: str) -> Message:
        """Return the answer to an export request, with OTLP's partial success where something was rejected."""

    def is_ours(self, record: Any) -> bool:
        """Return whether a record is a packed one of a gateway's: never sampled, limited or changed."""
        return False

    def size(self, record: Any) -> int:
        """Return how many records of the answer's counting one message is."""
        return 1

    def by_tenant(self, record: Any, own: str) -> dict[str, Any]:
        """Return a record that is not ours by the tenant it names, `own` where it names none."""
        return {tenant_in(record.attributes) or own: record}

    def foreign_records(self, part: Any) -> int:
        """Return the number of records of a part that are not ours."""
        return sum(self.size(record) for record in self.records_of(part) if not self.is_ours(record))

    def records_of(self, part: Any) -> Iterator[Any]:
        """Yield a part's records, of all its scopes."""
        for scope in getattr(part, self.scopes):
            yield from getattr(scope, self.records)

    def drop_foreign(self, part: Any) -> int:
        """Accept the records that are not ours out of a part, and return how many they were."""
        dropped = self.foreign_records(part)
        for scope in getattr(part, self.scopes):
            records = getattr(scope, self.records)
            ours = [record for record in records if self.is_ours(record)]
            if len(ours) < len(records):
                del records[:]
                records.extend(ours)
        return dropped

    def salvage(self, body: bytes) -> tuple[bytes, int]:
        """Return a body without the unreadable records, and their number. Raises InvalidRequest if none is left."""
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
        """Parse an OTLP/JSON body: protobuf's JSON, but with ids in hexadecimal. Raises InvalidRequest."""
        try:
            found = json.loads(body, object_hook=_ids_to_base64)
            if not isinstance(found, dict):
                raise ValueError("not an object")
            return json_format.ParseDict(found, self.request(), ignore_unknown_fields=True)
        except (ValueError, json_format.ParseError, RecursionError, OverflowError, SystemError) as error:
            # Infinity where an enumeration is expected is an OverflowError, half a surrogate pair a SystemError.
            raise InvalidRequest(
                f"the body of {len(body)} bytes is not an OTLP/JSON {self.request.DESCRIPTOR.name}",
                code="malformed_json",
            ) from error

    def split(self, message: M, body: bytes) -> list[tuple[str, bytes]]:
        """Split a request by the senders' batch ids: (id or '', body) of each, in the order they appear.

        A gateway's request is one batch; a collector in front of us may have merged several senders' into one. Parts
        without a record are left out.
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
