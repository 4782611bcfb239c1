"""Leader election among control planes by a lease in the control database."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backends.control.database import ControlDatabase
from backends.control.leases import HeldLease, give_back, take_lease
from contracts.errors import TollkeeperError

_log = logging.getLogger(__name__)

LEASE: Final = "control-plane"
LEASE_LASTS: Final = timedelta(seconds=15)
_RENEW_SECONDS: Final = 5.0


def database_time(session: Session) -> datetime:
    """Return the database's current time, which is the same for all control planes, whatever their own clocks say."""
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    return now


class Leadership:
    """One control plane's part in the leader election. All control planes serve requests; the leader also writes the
    chain that confirms the audit log.
    """

    def __init__(
        self,
        database: ControlDatabase,
        holder: str,
        now: Callable[[Session], datetime] = database_time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Accept this control plane's name, which must be unique."""
        self._database = database
        self._holder = holder
        self._now = now
        self._lease: HeldLease | None = None
        self._monotonic = monotonic
        self._until = monotonic()
        self._is_alone = database.url.get_backend_name() == "sqlite"  # a file has one control plane

    def leads(self) -> bool:
        """Return whether this control plane is the leader now. At most one is."""
        return self._is_alone or (self._lease is not None and self._monotonic() < self._until)

    def look(self) -> bool:
        """Acquire or renew the lease; return whether this control plane is the leader. Raises ControlUnavailable."""
        if self._is_alone:
            return True
        led, asked = self._lease is not None, self._monotonic()  # before: the database counts from later on
        with self._database.session() as session:
            self._lease = take_lease(session, LEASE, self._holder, self._now(session), LEASE_LASTS)
        self._until = asked + LEASE_LASTS.total_seconds()
        if led != (self._lease is not None):
            _log.info("control_plane_leads" if self._lease else "control_plane_follows", extra={"holder": self._holder})
        return self._lease is not None

    async def run(self) -> None:
        """Renew the lease, or wait for it to be free, until cancelled."""
        is_away = False
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await asyncio.to_thread(self.look)
                is_away = False
            except TollkeeperError as error:
                if not is_away:
                    _log.warning("leadership_not_renewed", extra={"reason": error.message})
                is_away = True
            except Exception:  # the edge of the task: were it to end, nobody might lead any more
                if not is_away:
                    _log.exception("leadership_not_renewed")
                is_away = True

    def give_back(self) -> None:
        """Release the leadership for another control plane. Raises ControlUnavailable."""
        lease, self._lease = self._lease, None
        if lease is not None:
            with self._database.session() as session:
                give_back(session, lease, self._now(session))
