"""A protobuf description of OTLP's trace request that leaves attributes as bytes.

Most attributes of a batch repeat, so they are looked up in a cache by their bytes instead of parsed. Fields that are
not stored are not described.
Source of names and numbers: opentelemetry-proto 1.9, `trace/v1/trace.proto`.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "tollkeeper.spans"
_STRING, _BYTES, _FIXED64, _INT32, _MESSAGE = (
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    descriptor_pb2.FieldDescriptorProto.TYPE_FIXED64,
    descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
)
# By message: field name, number, type or message type, whether it is repeated. Enumerations are read as integers.
_MESSAGES: Final[dict[str, tuple[tuple[str, int, Any, bool], ...]]] = {
    "Request": (("resource_spans", 1, "ResourceSpans", True),),
    "ResourceSpans": (("resource", 1, "Resource", False), ("scope_spans", 2, "ScopeSpans", True)),
    "Resource": (("attributes", 1, _BYTES, True),),
    "ScopeSpans": (("scope", 1, "Scope", False), ("spans", 2, "Span", True)),
    "Scope": (("name", 1, _STRING, False), ("version", 2, _STRING, False)),
    "Span": (
        ("trace_id", 1, _BYTES, False),
        ("span_id", 2, _BYTES, False),
        ("trace_state", 3, _STRING, False),
        ("parent_span_id", 4, _BYTES, False),
        ("name", 5, _STRING, False),
        ("kind", 6, _INT32, False),
        ("start_time_unix_nano", 7, _FIXED64, False),
        ("end_time_unix_nano", 8, _FIXED64, False),
        ("attributes", 9, _BYTES, True),
        ("events", 11, "Event", True),
        ("links", 13, "Link", True),
        ("status", 15, "Status", False),
    ),
    "Event": (("time_unix_nano", 1, _FIXED64, False), ("name", 2, _STRING, False), ("attributes", 3, _BYTES, True)),
    "Link": (
        ("trace_id", 1, _BYTES, False),
        ("span_id", 2, _BYTES, False),
        ("trace_state", 3, _STRING, False),
        ("attributes", 4, _BYTES, True),
    ),
    "Status": (("message", 2, _STRING, False), ("code", 3, _INT32, False)),
}


def _request_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="tollkeeper/spans.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, kind, is_repeated in fields:
            label = (
                descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                if is_repeated
                else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            )
            field = made.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
    # A separate pool: the default pool has the standard descriptions of the same messages
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Request"))


SpansMessage: Final = _request_class()
