"""What every reply says of the limits it passed: OpenAI's `x-ratelimit-*` for requests and tokens."""

import math
from collections.abc import Sequence

from gateway.limits.base import Counter
from gateway.limits.plan import Lines

Headers = tuple[tuple[bytes, bytes], ...]


def rate_headers(lines: Lines, now_ns: int) -> Headers:
    """Give limit, remaining and reset of the tightest limit on requests and of the tightest on tokens.

    Tightest is what has the least left. What has no window (a conversation, a budget) is not shown.
    """
    return _of(_tightest(lines.requests, now_ns), b"requests", now_ns) + _of(
        _tightest(lines.tokens, now_ns), b"tokens", now_ns
    )


def _tightest(counters: Sequence[Counter], now_ns: int) -> Counter | None:
    if len(counters) < 2:
        return counters[0] if counters else None
    return min(counters, key=lambda counter: counter.room(now_ns))


def _of(counter: Counter | None, kind: bytes, now_ns: int) -> Headers:
    if counter is None:
        return ()
    state = counter.state(now_ns)
    return (
        (b"x-ratelimit-limit-" + kind, b"%d" % state.amount),
        (b"x-ratelimit-remaining-" + kind, b"%d" % state.remaining),
        (b"x-ratelimit-reset-" + kind, duration(state.reset_seconds or 0.0)),
    )


def duration(seconds: float) -> bytes:
    """Write a duration as OpenAI does: "0s", "120ms", "1.5s", "6m0s", "1h2m3s"; rounded up to a millisecond."""
    milliseconds = math.ceil(round(seconds * 1000, 6))
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
