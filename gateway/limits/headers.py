"""What every reply says of the limits it passed: OpenAI's `x-ratelimit-*` for requests and tokens."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gateway.limits.plan import Lines

Headers = tuple[tuple[bytes, bytes], ...]
_Names = tuple[bytes, bytes, bytes]  # of limit, remaining and reset

_REQUESTS: Final = (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests")
_TOKENS: Final = (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens")


def rate_headers(lines: Lines, now_ns: int, left: Sequence[int] | None = None) -> Headers:
    """Give limit, remaining and reset of the tightest limit on requests and of the tightest on tokens.

    Tightest is what has the least left. What has no window (a conversation, a budget) is not shown. `left` is what
    each of the lines has left at this moment, where that is known.
    """
    headers: Headers = ()
    if lines.requests:
        headers = _of(lines, lines.requests, _REQUESTS, now_ns, left)
    if lines.tokens:
        headers += _of(lines, lines.tokens, _TOKENS, now_ns, left)
    return headers


def _of(lines: Lines, shown: Sequence[int], names: _Names, now_ns: int, left: Sequence[int] | None) -> Headers:
    limit, remaining, reset = names
    if left is not None and lines.quick is not None:
        tightest = shown[0] if len(shown) == 1 else min(shown, key=left.__getitem__)
        quick = lines.quick[tightest][0]
        reset_seconds = quick.reset_seconds(now_ns) or 0.0
        return (
            (limit, b"%d" % quick.rule.amount),
            (remaining, b"%d" % left[tightest]),
            (reset, duration(reset_seconds)),
        )
    counters = [lines.all[number][0] for number in shown]
    rooms = [counter.room(now_ns) for counter in counters]
    state = counters[rooms.index(min(rooms))].state(now_ns)
    return (
        (limit, b"%d" % state.amount),
        (remaining, b"%d" % state.remaining),
        (reset, duration(state.reset_seconds or 0.0)),
    )


def duration(seconds: float) -> bytes:
    """Write a duration as OpenAI does: "0s", "120ms", "1.5s", "6m0s", "1h2m3s"; rounded up to a millisecond."""
    return _written(-(-round(seconds * 1e9) // 1_000_000))


@lru_cache(maxsize=4096)  # what a window says lies within the one second of its newest bucket, most of the time
def _written(milliseconds: int) -> bytes:
    if milliseconds < 1000:
        return b"%dms" % milliseconds if milliseconds else b"0s"
    whole, rest = divmod(milliseconds, 1000)
    hours, whole = divmod(whole, 3600)
    minutes, whole = divmod(whole, 60)
    fraction = (b".%03d" % rest).rstrip(b"0") if rest else b""
    text = b"%d%bs" % (whole, fraction)
    if hours:
        return b"%dh%dm%b" % (hours, minutes, text)
    return b"%dm%b" % (minutes, text) if minutes else text
