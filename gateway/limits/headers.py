"""Rate limit headers of responses: OpenAI's `x-ratelimit-*` for requests and tokens."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from gateway.limits.counters.sliding import SlidingCounter
from gateway.limits.limit_plan import Lines

Headers = tuple[tuple[bytes, bytes], ...]
_Names = tuple[bytes, bytes, bytes]  # names of the limit, remaining and reset headers
_Line = tuple[bytes, bytes]
OwnNames = tuple[_Names, _Names]  # of limits on requests and on tokens, in an API that states resets as timestamps

_REQUESTS: Final = (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests")
_TOKENS: Final = (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens")


def rate_headers(lines: Lines, now_ns: int, left: list[int] | None = None) -> Headers:
    """Return limit, remaining and reset of the tightest limit on requests and of the tightest on tokens.

    The tightest has the lowest remaining amount. Counters without a window (conversations, budgets) are not shown.
    `left` is the remaining amount of each counter after a charge at this time, if known.
    """
    headers: Headers = ()
    for shown, names in ((lines.requests, _REQUESTS), (lines.tokens, _TOKENS)):
        if not shown:
            continue
        if left is not None and lines.quick is not None:
            told = _told(lines, shown, now_ns, left)
            headers += tuple(zip(names, told, strict=True))
        else:
            headers += _of(lines, shown, names, now_ns)
    return headers


def _tightest(shown: tuple[int, ...], left: list[int]) -> int:
    """Return the first of those with the lowest remaining amount."""
    tightest = shown[0]
    least = left[tightest]
    for number in shown:
        if left[number] < least:
            tightest, least = number, left[number]
    return tightest


def _told(lines: Lines, shown: tuple[int, ...], at_ns: int, left: list[int]) -> tuple[bytes, bytes, bytes]:
    """Return the three header values at the time of a charge."""
    tightest = _tightest(shown, left)
    counter = lines.windows[tightest][0]
    wait = _written((counter.resets_at_ns() - at_ns + 999_999) // 1_000_000)
    return b"%d" % counter.rule.amount, b"%d" % left[tightest], wait


def _of(lines: Lines, shown: tuple[int, ...], names: _Names, now_ns: int) -> Headers:
    counters = [lines.in_turn[number][0] for number in shown]
    tightest = counters[0]
    if len(counters) > 1:
        rooms = [counter.room(now_ns) for counter in counters]
        tightest = counters[rooms.index(min(rooms))]
    state = tightest.state(now_ns)
    limit, remaining, reset = names
    return (
        (limit, b"%d" % state.amount),
        (remaining, b"%d" % state.remaining),
        (reset, duration(state.reset_seconds or 0.0)),
    )


class RateLines:
    """The same headers as bytes, for all requests that pass the same counters, each of which is charged in one call."""

    __slots__ = ("_shown",)

    def __init__(self, lines: Lines, own: OwnNames | None = None) -> None:
        """Accept `own`: the names of these headers in the client's API, in addition to OpenAI's."""
        # For requests and for tokens: the counters, and for each counter its lines if it is the tightest, in OpenAI's
        # format and in the API's own.
        self._shown: list[tuple[tuple[int, ...], dict[int, tuple[SlidingCounter, _Line, _Line | None]]]] = []
        own_names = (None, None) if own is None else own
        for shown, names, also in (
            (lines.requests, _REQUESTS, own_names[0]),
            (lines.tokens, _TOKENS, own_names[1]),
        ):
            if shown:
                by_number = {}
                for number in shown:
                    counter = lines.windows[number][0]
                    own_line = None if also is None else _line(also, counter.rule.amount)
                    by_number[number] = (counter, _line(names, counter.rule.amount), own_line)
                self._shown.append((shown, by_number))

    def told(self, at_ns: int, left: list[int], wall_ns: int) -> bytes:
        """Return the headers at the time of a charge that left `left` in each counter; `wall_ns` is Unix time."""
        said = b""
        for shown, by_number in self._shown:
            tightest = _tightest(shown, left)
            counter, line, own = by_number[tightest]
            wait_ms = (counter.resets_at_ns() - at_ns + 999_999) // 1_000_000
            remaining = str(left[tightest]).encode()
            before, between = line
            said = b"%b%b%b%b%b\r\n" % (said, before, remaining, between, _written(wait_ms))
            if own is not None:
                before, between = own
                reset = moment_in(wait_ms * 1_000_000, wall_ns)
                said = b"%b%b%b%b%b\r\n" % (said, before, remaining, between, reset)
        return said


def _line(names: _Names, amount: int) -> _Line:
    """Return what stands before the remaining amount in a limit's header lines, and between that and the reset."""
    limit, remaining, reset = names
    return b"%b: %d\r\n%b: " % (limit, amount, remaining), b"\r\n%b: " % reset


def moment_in(wait_ns: int, wall_ns: int) -> bytes:
    """Return the time `wait_ns` from now, in whole seconds rounded up, such as "2026-11-21T16:31:31Z"."""
    return _moment(-(-(wall_ns + wait_ns) // 1_000_000_000))


@lru_cache(maxsize=256)  # the windows in use end at few different times
def _moment(unix: int) -> bytes:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()


def duration(seconds: float) -> bytes:
    """Format a duration as OpenAI does: "0s", "120ms", "1.5s", "6m0s", "1h2m3s"; rounded up to a millisecond."""
    return _written(-(-round(seconds * 1e9) // 1_000_000))


def _written(milliseconds: int) -> bytes:
    whole, rest = milliseconds // 1000, milliseconds % 1000
    if whole:
        return _whole_seconds(whole) + _FRACTIONS[rest]
    return b"%dms" % rest if rest else b"0s"


@lru_cache(maxsize=4096)  # as many as the seconds that the windows in use have left
def _whole_seconds(seconds: int) -> bytes:
    """Format whole seconds, without the final unit."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return b"%dh%dm%d" % (hours, minutes, rest)
    return b"%dm%d" % (minutes, rest) if minutes else b"%d" % rest


_FRACTIONS: Final = [b"s", *((b".%03d" % rest).rstrip(b"0") + b"s" for rest in range(1, 1000))]
