"""Removes secrets, prompts and completions from OTLP requests before they are forwarded."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.processors.attributes import REDACTED
from collector.processors.packed import is_packed
from collector.processors.redaction import TextRedaction, What
from collector.processors.signal import SignalProcessor
from collector.spool import Signal, SpooledBatch
from contracts.recording.dialects import CONTENT_EVENT_PREFIX, reading_of

_ATTRIBUTES: Final = frozenset({"attributes", "filtered_attributes", "metadata"})


class RedactedMessages:
    """Replaces secrets in values, as in the store's rows, and removes prompts and completions.

    Gateways' packed records are unchanged. With `keeps_prompts`, prompts and completions are redacted like other values
    instead of removed.
    """

    def __init__(
        self, processors: Mapping[Signal, SignalProcessor[Any]], what: Collection[What], *, keeps_prompts: bool
    ) -> None:
        self._processors = processors
        self._text = TextRedaction(what)
        self._keeps_prompts = keeps_prompts

    def clean(self, batch: SpooledBatch) -> SpooledBatch | None:
        """Return the cleaned batch with the same id; `None` if it cannot be parsed."""
        try:
            message = self._processors[batch.signal].request.FromString(batch.payload)
        except DecodeError:
            return None
        self._clean(message)
        return msgspec.structs.replace(batch, payload=message.SerializeToString())

    def _clean(self, message: Message) -> None:
        if isinstance(message, LogRecord):
            if is_packed(message):
                return
            self._clean_log(message)
        elif isinstance(message, Span.Event):
            self._clean_event(message.name, message.attributes)
        elif isinstance(message, Status):
            message.message = self._text.clean(message.message)
        for field, value in message.ListFields():
            if field.name in _ATTRIBUTES:
                self._clean_attributes(value)
            elif field.message_type is None or isinstance(value, AnyValue):
                continue
            elif isinstance(value, Message):
                self._clean(value)
            else:
                for each in value:
                    self._clean(each)

    def _clean_log(self, record: LogRecord) -> None:
        if record.event_name.startswith(CONTENT_EVENT_PREFIX) and not self._keeps_prompts:
            record.ClearField("body")
        self._clean_value(record.body)
        self._clean_event(record.event_name, record.attributes)

    def _clean_event(self, name: str, attributes: Any) -> None:
        """Remove a GenAI event's attributes without a namespace: they contain prompts and completions."""
        if name.startswith(CONTENT_EVENT_PREFIX) and not self._keeps_prompts:
            _keep(attributes, [one for one in attributes if "." in one.key])

    def _clean_attributes(self, attributes: Any) -> None:
        kept: list[KeyValue] = []
        for attribute in attributes:
            treatment = reading_of(attribute.key).treatment
            if treatment == "drop" and not self._keeps_prompts:
                continue
            if treatment == "redact":
                attribute.value.string_value = REDACTED
            else:
                self._clean_value(attribute.value)
            kept.append(attribute)
        _keep(attributes, kept)

    def _clean_value(self, value: AnyValue) -> None:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            text = value.string_value
            if (clean := self._text.clean(text)) != text:
                value.string_value = clean
        elif kind == "array_value":
            for each in value.array_value.values:
                self._clean_value(each)
        elif kind == "kvlist_value":
            self._clean_attributes(value.kvlist_value.values)


def _keep(attributes: Any, kept: list[KeyValue]) -> None:
    if len(kept) < len(attributes):
        copies = [KeyValue.FromString(one.SerializeToString()) for one in kept]
        del attributes[:]
        attributes.extend(copies)
