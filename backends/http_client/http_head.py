"""Reuses the parsed head of a connection's last message for the next one, if only length and trace differ."""

import re
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*(?=\r\n)", re.IGNORECASE)
_TRACE_VALUE: Final = rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
_TRACE: Final = re.compile(rb"\r\n(?i:traceparent):[ \t]*(" + _TRACE_VALUE + rb")[ \t]*(?=\r\n)")
_is_trace: Final = re.compile(_TRACE_VALUE).fullmatch
_TRACE_BYTES: Final = 55
_MAX_MISSES: Final = 4
_MAX_DIGITS: Final = 18
_ZERO: Final = 48  # the digits in ASCII
_NINE: Final = 57


class LastHead:
    """The head of the last parsed message, except the values of Content-Length and `traceparent`.

    A message whose other bytes are equal has the same meaning, so it needs no parser. If heads keep differing, none is
    kept any more after a few.
    """

    __slots__ = ("_after", "_before", "_between", "_has_trace", "_is_trace_first", "_misses", "trace")

    def __init__(self) -> None:
        self._before = self._between = self._after = b""
        self._has_trace = self._is_trace_first = False
        self._misses = 0
        self.trace = b""  # the `traceparent` of the last message that `body_of` accepted; empty if it had none

    def learn(self, message: bytes) -> bool:
        """Keep the head of a parsed message; return false if it is not kept: no Content-Length, or not received at
        once.
        """
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
        traces = list(_TRACE.finditer(message, 0, end))
        self._has_trace = len(traces) == 1
        self._is_trace_first = False
        self._between = b""
        if self._has_trace:
            began, ended = traces[0].span(1)
            self._is_trace_first = ended < start
            if self._is_trace_first:
                self._between, start = message[ended:start], began
            else:
                self._between, stop = message[stop:began], ended
        self._before, self._after = message[:start], message[stop:end]
        return True

    def body_of(self, message: bytes) -> bytes | None:
        """Return the body of a complete message with the same head; `None` if it must be parsed."""
        before, after, end = self._before, self._after, len(message)
        if not before or not message.startswith(before):
            return None
        at, trace = len(before), b""
        if self._is_trace_first:
            trace = message[at : at + _TRACE_BYTES]
            at = self._behind_between(message, at + _TRACE_BYTES)
            if at < 0:
                return None
        start = at
        length, at = _number_at(message, start, min(end, start + _MAX_DIGITS))  # the parser refuses more digits
        if self._has_trace and not self._is_trace_first:
            at = self._behind_between(message, at)
            if at < 0:
                return None
            trace = message[at : at + _TRACE_BYTES]
            at += _TRACE_BYTES
        body = at + len(after)
        if length < 0 or body + length != end or message[at:body] != after:
            return None
        if self._has_trace and _is_trace(trace) is None:
            return None
        self._misses = 0
        self.trace = trace
        return message[body:]

    def _behind_between(self, message: bytes, at: int) -> int:
        """Return the position after the bytes between length and trace; -1 if `message` has others at `at`."""
        behind = at + len(self._between)
        return behind if message[at:behind] == self._between else -1


def _number_at(message: bytes, start: int, most: int) -> tuple[int, int]:
    """Read a decimal number without leading zeros; return it (-1: there is none) and the position after it."""
    number, at = 0, start
    while at < most and _ZERO <= message[at] <= _NINE:
        number = number * 10 + message[at] - _ZERO
        at += 1
    if at == start or (at > start + 1 and message[start] == _ZERO):
        return -1, at
    return number, at
