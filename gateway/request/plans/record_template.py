"""The packed record of requests that are alike: what differs from one to the next is filled in, the rest is bytes."""

from operator import itemgetter
from typing import Final

import msgspec

from contracts.recording.records import RequestRecord, encode_record

_encoder: Final = msgspec.msgpack.Encoder()
_ARRAY_16: Final = b"\xdc"  # MessagePack's mark of an array with two bytes of length
_HEADER_BYTES: Final = 3


def packed(value: object) -> msgspec.Raw:
    """Return a value that is in many records as it is packed in each."""
    return msgspec.Raw(_encoder.encode(value))


class RecordTemplate:
    """Packs request records that differ from `example` only in the fields named `varying`.

    `fixed` are the runs of fields that are alike of all, packed, in the record's order.
    """

    __slots__ = ("_header", "_order", "_own_header_bytes", "fixed")

    def __init__(self, example: RequestRecord, varying: tuple[str, ...]) -> None:
        packed = encode_record(example)
        assert packed[:1] == _ARRAY_16, "a request record has more than 15 fields"
        self._header = packed[:_HEADER_BYTES]
        fixed: list[msgspec.Raw] = []
        order: list[int] = []
        run = _encoder.encode(RequestRecord.__struct_config__.tag)
        for name in (*RequestRecord.__struct_fields__, ""):
            if name and name not in varying:
                run += _encoder.encode(getattr(example, name))
                continue
            if run:
                order.append(len(varying) + len(fixed))
                fixed.append(msgspec.Raw(run))
                run = b""
            if name:
                order.append(varying.index(name))
        self.fixed = tuple(fixed)
        self._order = itemgetter(*order)
        self._own_header_bytes = 1 if len(order) < 16 else _HEADER_BYTES

    def pack(self, values: tuple[object, ...]) -> bytes:
        """Return the record whose varying fields have these values, in the order they were named, as
        `encode_record`.
        """
        return self.pack_all(self._order(values + self.fixed))

    def pack_all(self, parts: tuple[object, ...]) -> bytes:
        """Return the record whose varying fields and fixed runs are these, in the record's order."""
        return self._header + _encoder.encode(parts)[self._own_header_bytes :]
