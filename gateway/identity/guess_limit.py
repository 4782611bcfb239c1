"""Rate-limit authentication failures per address; valid keys are never limited.

Keys have 256 random bits, so this is not a defence against guessing. It bounds the work that a broken or hostile client
causes, and its 429 names the retry time. Valid keys pass because many callers may share an address.
"""

from collections import OrderedDict
from ipaddress import IPv6Address
from typing import Final

from backends.network.network_addresses import Address
from contracts.errors import AuthenticationFailed, LimitExceeded

_MINUTE_NS: Final = 60_000_000_000
MAX_ADDRESSES: Final = 50_000  # about 13 MiB


class UnknownCredential(AuthenticationFailed):
    """The key or token is unknown, malformed, or not signed by a known issuer. Counted per address."""


class GuessLimit:
    """Counts failures per address (an IPv6 /64 counts as one address) by the GCRA algorithm.

    An address may fail `per_minute` times at once, and then once every minute / `per_minute`. At most `max_addresses`
    are stored, the latest to fail.
    """

    def __init__(self, per_minute: int, max_addresses: int = MAX_ADDRESSES) -> None:
        self._per_minute = per_minute
        self._interval_ns = _MINUTE_NS // per_minute
        self._tolerance_ns = self._interval_ns * (per_minute - 1)
        self._max_addresses = max_addresses
        # By address: when all its failures are forgotten (GCRA's theoretical arrival time, monotonic ns).
        self._forgotten_at: OrderedDict[int, int] = OrderedDict()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._forgotten_at)

    def answer_to(
        self, failure: UnknownCredential, address: Address | None, now_ns: int
    ) -> UnknownCredential | LimitExceeded:
        """Count a failure and return the error to answer with: the failure, or LimitExceeded above the limit.

        A failure above the limit is not counted, so waiting until the retry time always helps. `now_ns` is
        monotonic.
        """
        place = _place_of(address)
        forgotten_at = max(self._forgotten_at.get(place, 0), now_ns)
        wait_ns = forgotten_at - now_ns - self._tolerance_ns
        if wait_ns > 0:
            self.refused += 1
            return LimitExceeded(
                f"more than {self._per_minute} unknown API keys or tokens in a minute came from this "
                "address; this one is unknown too: check it before you try again",
                retry_after_seconds=wait_ns / 1e9,
                should_retry=False,  # the same key would be refused again
            )
        self._forgotten_at[place] = forgotten_at + self._interval_ns
        self._forgotten_at.move_to_end(place)
        self._forget(now_ns)
        return failure

    def _forget(self, now_ns: int) -> None:
        """Drop expired or surplus entries: at most two per call, so that no failure costs much."""
        for _ in range(2):
            place, forgotten_at = next(iter(self._forgotten_at.items()))
            if forgotten_at <= now_ns or len(self._forgotten_at) > self._max_addresses:
                del self._forgotten_at[place]


def _place_of(address: Address | None) -> int:
    """Return a number for an address: IPv4 below 2^32, networks of IPv6 above; unknown addresses share one."""
    if address is None:
        return -1
    return (int(address) >> 64) + (1 << 32) if isinstance(address, IPv6Address) else int(address)
