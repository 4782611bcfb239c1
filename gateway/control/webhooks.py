"""Budget events delivered to webhooks: signed, at least once, by one control plane at a time, for up to a day."""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from backends.channels.base import ChannelSettings
from backends.channels.http_post import HttpPost
from backends.channels.inward import Network
from backends.control.budget_events import NOW_REFUSING, claim_event, due_events, fail_event, finish_event
from backends.control.change_detector import ChangeDetector
from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from contracts.control import Budget, BudgetEvent
from contracts.errors import ConfigurationError, TollkeeperError
from contracts.recording.moments import utc_now
from contracts.rules.metrics import Metric
from contracts.rules.rule_words import exact_text
from contracts.rules.webhook_signature import EVENT_ID_HEADER as EVENT_ID_HEADER
from contracts.rules.webhook_signature import SIGNATURE_HEADER as SIGNATURE_HEADER
from contracts.rules.webhook_signature import signature_of as signature_of

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_ASK_EVERY_SECONDS: Final = 5.0  # although the files of SQLite say that nothing has changed: further tries become due
_TIMEOUT_SECONDS: Final = 5.0
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One delivery attempt, with the data of its rows, so that no database connection is held during the call."""

    event_id: str
    attempts: int
    url: str
    body: bytes


class WebhookDelivery:
    """Calls webhooks in the background, at public addresses and in the networks `inward`. `now` returns the current
    time.
    """

    def __init__(
        self,
        database: ControlDatabase,
        secret: bytes,
        now: Callable[[], datetime] = utc_now,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        inward: tuple[Network, ...] = (),
        sealer: Sealer | None = None,
    ) -> None:
        self._database = database
        self._secret = secret
        self._now = now
        self._sealer = sealer
        self._look = ChangeDetector(database.url, _ASK_EVERY_SECONDS)
        # A team's lead may write a webhook, and must not have this process call what only it can reach.
        self._http = HttpPost(ChannelSettings(timeout_seconds=timeout_seconds, inward=inward))

    async def run(self) -> None:
        """Deliver due events, once a second, until cancelled."""
        is_away = False
        while True:
            try:
                if self._look.may_have_changed():
                    with self._look.reading():
                        await self.deliver_due()
                is_away = False
            except TollkeeperError as error:
                if not is_away:
                    _log.warning("webhooks_wait", extra={"reason": error.message})
                is_away = True
            except Exception:  # the edge of the task: were it to end, no event would be delivered any more
                if not is_away:
                    _log.exception("webhooks_failed")
                is_away = True
            await asyncio.sleep(_LOOK_SECONDS)

    async def deliver_due(self) -> int:
        """Make one attempt for each due event; return how many were delivered."""
        due = await asyncio.to_thread(self._due)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def attempt(delivery: _Delivery) -> bool:
            async with gate:
                return await self._attempt(delivery)

        return sum(await asyncio.gather(*map(attempt, due)))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _attempt(self, delivery: _Delivery) -> bool:
        if not await asyncio.to_thread(self._claim, delivery):
            return False
        fault = await self._post(delivery)
        await asyncio.to_thread(self._finish, delivery, fault)
        return not fault

    async def _post(self, delivery: _Delivery) -> str:
        """Call the webhook; return the error, empty if there was none."""
        if not delivery.url:
            return "its address was encrypted with a key that is missing; set the webhook again"
        headers = {SIGNATURE_HEADER: signature_of(delivery.body, self._secret), EVENT_ID_HEADER: delivery.event_id}
        return (await self._http.post(delivery.url, delivery.body, headers)).fault

    def _due(self) -> list[_Delivery]:
        with self._database.session() as session:
            return [
                _Delivery(event.id, event.attempts, self._address(budget.webhook_url), event_body(event, budget))
                for event, budget in due_events(session, self._now())
            ]

    def _address(self, kept: str) -> str:
        """Return a webhook's address; empty if it cannot be decrypted, which affects only that event."""
        try:
            return kept if self._sealer is None else self._sealer.open_address(kept)
        except ConfigurationError:
            return ""

    def _claim(self, delivery: _Delivery) -> bool:
        with self._database.session() as session:
            return claim_event(session, delivery.event_id, delivery.attempts, self._now())

    def _finish(self, delivery: _Delivery, fault: str) -> None:
        with self._database.session() as session:
            if not fault:
                finish_event(session, delivery.event_id, self._now())
                return
            is_tried_again = fail_event(session, delivery.event_id, fault)
        detail = {"event": delivery.event_id, "attempts": delivery.attempts + 1, "reason": fault}
        _log.warning("webhook_failed" if is_tried_again else "webhook_given_up", extra=detail)


def event_body(event: BudgetEvent, budget: Budget) -> bytes:
    """Return an event as JSON. Money is exact decimal text in USD, GPU time in milliseconds."""
    in_money = budget.amount_usd is not None
    metric: Metric = "pico_usd" if in_money else "gpu_ns"
    amount_name, spent_name = (
        ("amount_usd", "spent_usd") if in_money else ("gpu_milliseconds", "spent_gpu_milliseconds")
    )
    fields = {
        "id": event.id,
        "type": "budget.threshold",
        "budget": budget.id,
        "tenant": budget.tenant_id,
        "level": budget.level,
        "subject": event.subject,
        "model": budget.model or None,
        "threshold_percent": event.threshold_percent,
        "is_refusing": budget.is_hard and event.threshold_percent == NOW_REFUSING,
        amount_name: exact_text(metric, int(event.amount)),
        spent_name: exact_text(metric, int(event.spent)),
        "period": budget.period,
        "period_start": event.period_start.isoformat(),
        "at": event.at.isoformat(),
    }
    return json.dumps(fields, separators=(",", ":")).encode()
