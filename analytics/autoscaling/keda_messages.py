"""The messages of KEDA's external scaler, described here rather than generated: kedacore/keda, externalscaler.proto.

The numbers are that file's (KEDA 2.17, 2025), so that any KEDA understands them.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "externalscaler"
SERVICE: Final = "externalscaler.ExternalScaler"

_Field = descriptor_pb2.FieldDescriptorProto
_STRING, _BOOL, _INT64, _DOUBLE, _MESSAGE = (
    _Field.TYPE_STRING,
    _Field.TYPE_BOOL,
    _Field.TYPE_INT64,
    _Field.TYPE_DOUBLE,
    _Field.TYPE_MESSAGE,
)


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="tollkeeper/externalscaler.proto", package=PACKAGE, syntax="proto3")
    reference = _message(file, "ScaledObjectRef", ("name", _STRING), ("namespace", _STRING))
    entry = reference.nested_type.add(name="ScalerMetadataEntry")
    entry.options.map_entry = True
    _add(entry, 1, "key", _STRING)
    _add(entry, 2, "value", _STRING)
    _add(reference, 3, "scalerMetadata", _MESSAGE, "ScaledObjectRef.ScalerMetadataEntry", is_repeated=True)
    _message(file, "IsActiveResponse", ("result", _BOOL))
    _message(file, "MetricSpec", ("metricName", _STRING), ("targetSize", _INT64), ("targetSizeFloat", _DOUBLE))
    specs = _message(file, "GetMetricSpecResponse")
    _add(specs, 1, "metricSpecs", _MESSAGE, "MetricSpec", is_repeated=True)
    asked = _message(file, "GetMetricsRequest")
    _add(asked, 1, "scaledObjectRef", _MESSAGE, "ScaledObjectRef")
    _add(asked, 2, "metricName", _STRING)
    _message(file, "MetricValue", ("metricName", _STRING), ("metricValue", _INT64), ("metricValueFloat", _DOUBLE))
    values = _message(file, "GetMetricsResponse")
    _add(values, 1, "metricValues", _MESSAGE, "MetricValue", is_repeated=True)
    return file


def _message(
    file: descriptor_pb2.FileDescriptorProto, name: str, *fields: tuple[str, "_Field.Type.ValueType"]
) -> descriptor_pb2.DescriptorProto:
    made = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields, 1):
        _add(made, number, field, kind)
    return made


def _add(
    message: descriptor_pb2.DescriptorProto,
    number: int,
    name: str,
    kind: "_Field.Type.ValueType",
    of: str = "",
    *,
    is_repeated: bool = False,
) -> None:
    field = message.field.add(name=name, number=number, type=kind)
    field.label = _Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL
    if of:
        field.type_name = f".{PACKAGE}.{of}"


_pool = descriptor_pool.DescriptorPool()  # of our own: the process may have KEDA's file loaded as well
_pool.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


# Classes made at run time have no type that a checker could know.
ScaledObjectRef: Final[Any] = _class("ScaledObjectRef")
IsActiveResponse: Final[Any] = _class("IsActiveResponse")
MetricSpec: Final[Any] = _class("MetricSpec")
GetMetricSpecResponse: Final[Any] = _class("GetMetricSpecResponse")
GetMetricsRequest: Final[Any] = _class("GetMetricsRequest")
MetricValue: Final[Any] = _class("MetricValue")
GetMetricsResponse: Final[Any] = _class("GetMetricsResponse")
