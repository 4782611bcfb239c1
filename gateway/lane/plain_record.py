"""The packed records of whole chats of which all is known, in few words: one format, filled in with the counts."""

import struct
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from contracts.records import RequestRecord, encode_record
from contracts.usage import LEAVES

_encoder: Final = msgspec.msgpack.Encoder()
_HEADER_BYTES: Final = 3  # of an array with more than 15 fields
_COUNT: Final = b"\xcf"  # MessagePack's mark of a number of eight bytes without a sign
_ID: Final = b"\xc4\x10"  # ... and of 16 bytes
_FIXARRAY: Final = 0x90  # ... and, with the length added, of a short array
_NOT_REPORTED: Final = b"\xc0"
_COUNTS: Final = frozenset(
    "started_at_ns duration_ns admission_ns cost_pico_usd charged_pico_usd request_bytes response_bytes"
    " reserved_tokens".split()
)
_COUNTED_LEAVES: Final = frozenset(("input_text", "output_text"))
_MOST_FORMATS: Final = 8

Wording = tuple[str, str, int | None, int, float | None]
"""What requests that are alike have one of a few of: finish_reason, model_version, max_tokens, choices, temperature."""


class PlainRecords:
    """Packs request records that differ from `example` in their wording and in twelve counts.

    Such a record has text in and text out and no other usage, was charged at once for all it used, and never more
    than was reserved. It says what `encode_record` says, with every count in eight bytes.
    """

    __slots__ = ("_example", "_formats", "_last", "_met", "_used", "_pack", "_between")

    def __init__(self, example: RequestRecord) -> None:
        self._example = example
        self._formats: dict[Wording, tuple[Callable[..., bytes], list[bytes]]] = {}
        self._last: Wording | None = None  # that was packed
        self._met: Wording | None = None  # for the first time
        self._used: set[Wording] = set()  # since room was made
        self._pack: Callable[..., bytes] | None = None
        self._between: list[bytes] = []

    def pack(
        self,
        wording: Wording,
        id: bytes,
        started_at_ns: int,
        duration_ns: int,
        admission_ns: int,
        tokens_in: int,
        tokens_out: int,
        cost_pico_usd: int,
        charged_pico_usd: int,
        request_bytes: int,
        response_bytes: int,
        reserved_tokens: int,
        charged_tokens: int,
    ) -> bytes | None:
        """Give a record, or `None` where its wording is new or one too many, or a count is below zero or too large."""
        if wording != self._last and not self._word(wording):
            return None
        pack, between = self._pack, self._between
        assert pack is not None
        try:
            return pack(
                between[0],
                id,
                between[1],
                started_at_ns,
                between[2],
                duration_ns,
                between[3],
                admission_ns,
                between[4],
                tokens_in,
                between[5],
                tokens_out,
                between[6],
                cost_pico_usd,
                between[7],
                charged_pico_usd,
                between[8],
                request_bytes,
                between[9],
                response_bytes,
                between[10],
                reserved_tokens,
                between[11],
                charged_tokens,
                between[12],
            )
        except struct.error:
            return None

    def make_room(self) -> None:
        """Forget the formats not used since the last time, or the oldest, where there are as many as may be."""
        if len(self._formats) >= _MOST_FORMATS:
            used = {wording: made for wording, made in self._formats.items() if wording in self._used}
            if len(used) == len(self._formats):  # else the eight that came first would shut out all others for good
                del used[next(iter(used))]
            self._formats = used
        self._used = set() if self._last is None else {self._last}

    def _word(self, wording: Wording) -> bool:
        """Take the format of a wording; say whether there is one."""
        found = self._formats.get(wording)
        if found is None:
            if len(self._formats) >= _MOST_FORMATS:
                return False
            if wording != self._met:  # a format costs as much as some 40 records save: none for what comes once
                self._met = wording
                return False
            found = self._formats[wording] = _format(self._example, wording)
        self._last = wording
        self._used.add(wording)
        self._pack, self._between = found
        return True


def _format(example: RequestRecord, wording: Wording) -> tuple[Callable[..., bytes], list[bytes]]:
    """Give what packs the records of a wording, and the bytes that stand before, between and behind their counts."""
    finish_reason, model_version, max_tokens, choices, temperature = wording
    record = replace(
        example,
        finish_reason=finish_reason,
        model_version=model_version,
        max_tokens=max_tokens,
        choices=choices,
        temperature=temperature,
        charge_offsets_ns=[0],
        overdraft_tokens=0,
    )
    between = [encode_record(record)[:_HEADER_BYTES] + _encoder.encode(RequestRecord.__struct_config__.tag)]
    for name in RequestRecord.__struct_fields__:
        if name == "request_id":
            between[-1] += _ID
            between.append(b"")
        elif name in _COUNTS:
            between[-1] += _COUNT
            between.append(b"")
        elif name == "usage":
            between[-1] += bytes((_FIXARRAY + len(LEAVES),))
            for leaf in LEAVES:
                if leaf in _COUNTED_LEAVES:
                    between[-1] += _COUNT
                    between.append(b"")
                else:
                    between[-1] += _NOT_REPORTED
        elif name == "charge_tokens":
            between[-1] += bytes((_FIXARRAY + 1,)) + _COUNT
            between.append(b"")
        else:
            between[-1] += _encoder.encode(getattr(record, name))
    counts = "".join(f"Q{len(run)}s" for run in between[2:])
    return struct.Struct(f">{len(between[0])}s16s{len(between[1])}s{counts}").pack, between
