"""How often a password may be tried: of one account, and from one address, whatever the account."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final

from contracts.errors import LimitExceeded
from gateway.identity.caller_address import address_of

PER_ACCOUNT: Final = 5  # at once, and then one more every minute
PER_ADDRESS: Final = 20
_SECONDS_EACH: Final = {"account": 60.0, "address": 15.0}
_MAX_REMEMBERED: Final = 20_000
_HOST_BITS: Final = 64  # of an IPv6 address: one line of a home or a server has all of these to itself


class SignInLimit:
    """Counts failures by account and by address; each is forgotten after a while (GCRA). Safe between threads.

    A failure is counted before the password is looked at and taken back where it was right, so that tries at the
    same time are all counted. Of an IPv6 address its /64 counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._forgotten_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def begin(self, email: str, address: str) -> None:
        """Count a try. Raises LimitExceeded where there were too many; such a try is not counted."""
        with self._lock:
            now = self._clock()
            waits = 0.0
            for (kind, subject), bound in (
                (("account", email), PER_ACCOUNT),
                (("address", _place(address)), PER_ADDRESS),
            ):
                each = _SECONDS_EACH[kind]
                forgotten_at = max(self._forgotten_at.get((kind, subject), 0.0), now)
                waits = max(waits, forgotten_at - now - each * (bound - 1))
            if waits > 0:
                raise LimitExceeded(
                    f"too many failed sign-ins for this account or from this address; try again in {waits:.0f} seconds",
                    retry_after_seconds=waits,
                )
            self._move(email, address, now, 1)

    def succeed(self, email: str, address: str) -> None:
        """Take the counted try back: the password was right."""
        with self._lock:
            self._move(email, address, self._clock(), -1)

    def _move(self, email: str, address: str, now: float, tries: int) -> None:
        for key in (("account", email), ("address", _place(address))):
            until = max(self._forgotten_at.get(key, 0.0), now) + tries * _SECONDS_EACH[key[0]]
            if until > now:
                self._forgotten_at[key] = until
                self._forgotten_at.move_to_end(key)
            else:
                self._forgotten_at.pop(key, None)
        while len(self._forgotten_at) > _MAX_REMEMBERED:
            self._forgotten_at.popitem(last=False)


def _place(text: str) -> str:
    address = address_of(text)
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS))
    return text if address is None else str(address)
