"""The head that the last HTTP message of a connection had: mostly the next has the same, its length aside."""

import re
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*(?=\r\n)", re.IGNORECASE)
_MAX_MISSES: Final = 4
_MAX_DIGITS: Final = 18
_ZERO: Final = 48  # the digits in ASCII
_NINE: Final = 57


class LastHead:
    """The bytes of a head that a parser has taken, before and after the number of its Content-Length.

    Another message with the same bytes means the same but for the length of its body: it needs no parser. Where heads
    differ from one message to the next, none is kept after a few.
    """

    __slots__ = ("_after", "_before", "_misses")

    def __init__(self) -> None:
        self._before = self._after = b""
        self._misses = 0

    def learn(self, message: bytes) -> bool:
        """Keep the head of a message that was parsed; say whether it is: it states its length, and all came at once."""
        self._before = b""
        if self._misses > _MAX_MISSES:
            return False
        self._misses += 1
        end = message.find(b"\r\n\r\n") + 4
        lengths = list(_LENGTH.finditer(message, 0, end))
        if len(lengths) != 1:
            return False
        start, stop = lengths[0].span(1)
        if int(message[start:stop]) != len(message) - end:
            return False
        self._before, self._after = message[:start], message[stop:end]
        return True

    def body_of(self, message: bytes) -> bytes | None:
        """Give the body of a message that has the same head and is whole; `None` for any other: it is to be parsed."""
        before, after, end = self._before, self._after, len(message)
        if not before or not message.startswith(before):
            return None
        start = at = len(before)
        length, most = 0, min(end, start + _MAX_DIGITS)  # a flood of digits is the parser's to refuse
        while at < most and _ZERO <= message[at] <= _NINE:
            length = length * 10 + message[at] - _ZERO
            at += 1
        digits, body = at - start, at + len(after)
        is_number = digits == 1 or digits > 1 and message[start] != _ZERO
        if not is_number or body + length != end or message[at:body] != after:
            return None
        self._misses = 0
        return message[body:]
