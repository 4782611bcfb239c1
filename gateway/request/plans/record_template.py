"""The packed record of similar requests: constant bytes, with the fields filled in that differ between requests."""

from operator import itemgetter
from typing import Final

import msgspec

from contracts.recording.records import RequestRecord, encode_record

_encoder: Final = msgspec.msgpack.Encoder()
_ARRAY_16: Final = b"\xdc"  # MessagePack's mark of an array with two bytes of length
_HEADER_BYTES: Final = 3


def packed(value: object) -> msgspec.Raw:
    """Return a value shared by many records, packed once."""
    return msgspec.Raw(_encoder.encode(value))


class RecordTemplate:
    """Packs request records that differ from `example` only in the fields named `varying`.

    `fixed` are the runs of constant fields, packed, in the order of the record.
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
        """Return the packed record with these values of the varying fields, in the order of `varying`."""
        return self.pack_all(self._order(values + self.fixed))

    def pack_all(self, parts: tuple[object, ...]) -> bytes:
        """Return the packed record with these varying fields and constant runs, in the order of the record."""
        return self._header + _encoder.encode(parts)[self._own_header_bytes :]
