"""Sends the notifications in the outbox: claims each for one attempt, and records the result."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, cast

from analytics.alerts.links import Links, with_links
from backends.channels.base import Notice, Outcome, Sender
from backends.control.alert_outbox import DueNotice, claim_notice, due_notices, fail_notice, finish_notice
from backends.control.change_detector import ChangeDetector
from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from contracts.errors import ConfigurationError
from contracts.rules.alert_channels import ChannelKind
from contracts.rules.alerts import Event

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_ASK_EVERY_SECONDS: Final = 5.0  # even if SQLite's files are unchanged, because retries become due


class Dispatcher:
    """Sends notifications. Several processes may share one database: each notification is claimed before it is sent."""

    def __init__(
        self,
        database: ControlDatabase,
        senders: Mapping[ChannelKind, Sender],
        now: Callable[[], datetime],
        sealer: Sealer,
        links: Links | None = None,
    ) -> None:
        self._database = database
        self._links = links or Links()
        self._sealer = sealer
        self._senders = senders
        self._now = now
        self._is_stopping = False
        self._look = ChangeDetector(database.url, _ASK_EVERY_SECONDS)

    async def look(self) -> int:
        """Call `send_due` if the control database has changed or a retry may be due; return the number delivered."""
        if not self._look.may_have_changed():
            return 0
        with self._look.reading():
            return await self.send_due()

    async def send_due(self) -> int:
        """Make one attempt for each due notification; return the number delivered. Raises ControlUnavailable.

        If cancelled, it finishes the attempts in progress (limited in time) and starts no others: a notification that
        was claimed but not sent would never be delivered.
        """
        due = await asyncio.to_thread(self._due)
        self._is_stopping = False
        gate = asyncio.Semaphore(_AT_ONCE)

        async def attempt(notice: DueNotice) -> bool:
            async with gate:
                return False if self._is_stopping else await self._attempt(notice)

        attempts = asyncio.gather(*map(attempt, due))
        try:
            return sum(await asyncio.shield(attempts))
        except asyncio.CancelledError:
            self._is_stopping = True
            await asyncio.gather(attempts, return_exceptions=True)
            raise

    async def _attempt(self, due: DueNotice) -> bool:
        if not await asyncio.to_thread(self._claim, due):
            return False
        sender = self._senders[cast(ChannelKind, due.kind)]
        notice = Notice(due.id, cast(Event, due.event), with_links(due.body, self._links), due.created_at)
        try:
            outcome = await sender.send(notice, self._sealer.open(due.address))
        except ConfigurationError as error:  # retried like other failures: the key's file may be restored
            outcome = Outcome(f"the channel's address cannot be read: {error.message}")
        except Exception as error:  # an unexpected error must not prevent recording the results of others
            _log.exception("notice_failed", extra={"notice": due.id})
            outcome = Outcome(f"failed here ({type(error).__name__})", may_have_arrived=True)
        await asyncio.to_thread(self._note, due, outcome)
        return outcome.is_delivered

    def _due(self) -> list[DueNotice]:
        with self._database.session() as session:
            return due_notices(session, self._now())

    def _claim(self, due: DueNotice) -> bool:
        with self._database.session() as session:
            return claim_notice(session, due, self._now())

    def _note(self, due: DueNotice, outcome: Outcome) -> None:
        with self._database.session() as session:
            if outcome.is_delivered:
                finish_notice(session, due.id, self._now())
                return
            state = fail_notice(
                session,
                due,
                outcome.fault,
                self._now(),
                may_have_arrived=outcome.may_have_arrived,
                is_final=outcome.is_final,
            )
        detail = {"notice": due.id, "channel_kind": due.kind, "attempts": due.attempts + 1, "reason": outcome.fault}
        _log.warning(f"notice_{state}", extra=detail)
