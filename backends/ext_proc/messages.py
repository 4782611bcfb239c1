"""Messages of Envoy's `envoy.service.ext_proc.v3` that an endpoint picker reads or writes.

Built from field numbers instead of generated code: Envoy's whole API in Python is thousands of classes, of which a
dozen are used. Fields that are not listed are ignored, as protobuf specifies. Tests compare with Envoy's generated
classes.
"""

from typing import Any, Final

from google.protobuf import descriptor_pool, struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

_PACKAGE: Final = "tollkeeper.ext_proc"
_KINDS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int": FieldDescriptorProto.TYPE_INT32,
}
# Message: (field, number, scalar type or message type; a repeated field's type ends in []).
_MESSAGES: Final[dict[str, tuple[tuple[str, int, str], ...]]] = {
    "HeaderValue": (("key", 1, "string"), ("value", 2, "string"), ("raw_value", 3, "bytes")),
    "HeaderMap": (("headers", 1, "HeaderValue[]"),),
    "HeaderValueOption": (("header", 1, "HeaderValue"), ("append_action", 3, "int")),
    "HeaderMutation": (("set_headers", 1, "HeaderValueOption[]"), ("remove_headers", 2, "string[]")),
    "HttpHeaders": (("headers", 1, "HeaderMap"), ("end_of_stream", 3, "bool")),
    "HttpBody": (("body", 1, "bytes"), ("end_of_stream", 2, "bool")),
    "HttpTrailers": (("trailers", 1, "HeaderMap"),),
    "MetadataEntry": (("key", 1, "string"), ("value", 2, ".google.protobuf.Struct")),
    "Metadata": (("filter_metadata", 1, "MetadataEntry[]"),),
    "ProtocolConfiguration": (("request_body_mode", 1, "int"), ("response_body_mode", 2, "int")),
    "ProcessingRequest": (
        ("request_headers", 2, "HttpHeaders"),
        ("response_headers", 3, "HttpHeaders"),
        ("request_body", 4, "HttpBody"),
        ("response_body", 5, "HttpBody"),
        ("request_trailers", 6, "HttpTrailers"),
        ("response_trailers", 7, "HttpTrailers"),
        ("metadata_context", 8, "Metadata"),
        ("protocol_config", 11, "ProtocolConfiguration"),
    ),
    "StreamedBodyResponse": (("body", 1, "bytes"), ("end_of_stream", 2, "bool")),
    "BodyMutation": (("streamed_response", 3, "StreamedBodyResponse"),),
    "CommonResponse": (
        ("header_mutation", 2, "HeaderMutation"),
        ("body_mutation", 3, "BodyMutation"),
        ("clear_route_cache", 5, "bool"),
    ),
    "HeadersResponse": (("response", 1, "CommonResponse"),),
    "BodyResponse": (("response", 1, "CommonResponse"),),
    "TrailersResponse": (("header_mutation", 1, "HeaderMutation"),),
    "HttpStatus": (("code", 1, "int"),),
    "ImmediateResponse": (
        ("status", 1, "HttpStatus"),
        ("headers", 2, "HeaderMutation"),
        ("body", 3, "bytes"),
        ("details", 5, "string"),
    ),
    "ProcessingResponse": (
        ("request_headers", 1, "HeadersResponse"),
        ("response_headers", 2, "HeadersResponse"),
        ("request_body", 3, "BodyResponse"),
        ("response_body", 4, "BodyResponse"),
        ("request_trailers", 5, "TrailersResponse"),
        ("response_trailers", 6, "TrailersResponse"),
        ("immediate_response", 7, "ImmediateResponse"),
        ("dynamic_metadata", 8, ".google.protobuf.Struct"),
    ),
}

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD: Final = "Process"
FULL_DUPLEX: Final = 4  # ProcessingMode.BodySendMode: the body goes to Envoy and back
STREAMED: Final = 1


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="tollkeeper/ext_proc.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            one = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind.endswith("[]"):
                one.label = FieldDescriptorProto.LABEL_REPEATED
            bare = kind.removesuffix("[]")
            if bare in _KINDS:
                one.type = _KINDS[bare]
            else:
                one.type = FieldDescriptorProto.TYPE_MESSAGE
                one.type_name = bare if bare.startswith(".") else f".{_PACKAGE}.{bare}"
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.Default()
    pool.Add(_file())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_BY_NAME: Final = _classes()
ProcessingRequest: Final[Any] = _BY_NAME["ProcessingRequest"]
ProcessingResponse: Final[Any] = _BY_NAME["ProcessingResponse"]
