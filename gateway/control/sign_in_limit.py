"""Limits password attempts: per account and address, per address, and per account.

The first bound is low, so that guesses from elsewhere lock nobody out. The last one is high, and does not apply to an
address from which the account has signed in recently.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final

from backends.network.network_addresses import address_of
from contracts.errors import LimitExceeded

PER_PAIR: Final = 5  # of one account from one address: at once, and then one more every minute
PER_ADDRESS: Final = 20
PER_ACCOUNT: Final = 100  # from anywhere
_SECONDS_EACH: Final = {"pair": 60.0, "address": 15.0, "account": 15.0}
_BOUNDS: Final = {"pair": PER_PAIR, "address": PER_ADDRESS, "account": PER_ACCOUNT}
_KNOWN_SECONDS: Final = 30 * 86_400.0
_MAX_REMEMBERED: Final = 20_000
_HOST_BITS: Final = 64  # of an IPv6 address: one line of a home or a server has all of these to itself


class SignInLimit:
    """Counts failures by account, by address and by both; each is forgotten after a while (GCRA). Thread-safe.

    A failure is counted before the password is checked and removed if it was right, so that concurrent attempts are all
    counted. An IPv6 address counts as its /64 network.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._forgotten_at: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._known_until: OrderedDict[str, float] = OrderedDict()  # pairs that have signed in

    def begin(self, email: str, address: str) -> None:
        """Count an attempt. Raises LimitExceeded if there were too many; such an attempt is not counted."""
        with self._lock:
            now = self._clock()
            waits = 0.0
            is_known = self._known_until.get(_pair(email, address), 0.0) > now
            for kind, subject in _subjects(email, address):
                if kind == "account" and is_known:
                    continue
                forgotten_at = max(self._forgotten_at.get((kind, subject), 0.0), now)
                waits = max(waits, forgotten_at - now - _SECONDS_EACH[kind] * (_BOUNDS[kind] - 1))
            if waits > 0:
                raise LimitExceeded(
                    f"too many failed sign-ins for this account or from this address; try again in {waits:.0f} seconds",
                    retry_after_seconds=waits,
                )
            self._move(email, address, now, 1)

    def succeed(self, email: str, address: str) -> None:
        """Remove the counted attempt, because the password was right. From then on the address is known for the
        account.
        """
        with self._lock:
            now = self._clock()
            self._move(email, address, now, -1)
            self._known_until[_pair(email, address)] = now + _KNOWN_SECONDS
            self._known_until.move_to_end(_pair(email, address))
            while len(self._known_until) > _MAX_REMEMBERED:
                self._known_until.popitem(last=False)

    def take_back(self, email: str, address: str) -> None:
        """Remove the counted attempt, because no password was checked."""
        with self._lock:
            self._move(email, address, self._clock(), -1)

    def _move(self, email: str, address: str, now: float, tries: int) -> None:
        for key in _subjects(email, address):
            until = max(self._forgotten_at.get(key, 0.0), now) + tries * _SECONDS_EACH[key[0]]
            if until > now:
                self._forgotten_at[key] = until
                self._forgotten_at.move_to_end(key)
            else:
                self._forgotten_at.pop(key, None)
        while len(self._forgotten_at) > _MAX_REMEMBERED:
            self._forgotten_at.popitem(last=False)


def _subjects(email: str, address: str) -> tuple[tuple[str, str], ...]:
    return ("pair", _pair(email, address)), ("address", _place(address)), ("account", email)


def _pair(email: str, address: str) -> str:
    return f"{email} {_place(address)}"


def _place(text: str) -> str:
    address = address_of(text)
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS))
    return text if address is None else str(address)
