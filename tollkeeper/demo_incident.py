"""The demo's incident: a model is slow until the SLO alert is sent, then fast until the alert's end is sent."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from contracts.errors import TollkeeperError
from tollkeeper.control_client import ControlClient
from tollkeeper.demo_slos import SLO_MS, channel_of, slo_rule_of
from tollkeeper.replay.chat import Chat, GatewayClient
from tollkeeper.replay.composer import AT_ONCE, Pace, chat_body
from tollkeeper.replay.payers import Payer, Place, create_payers, revoke_payers
from tollkeeper.replay.served_model import ServedModel
from tollkeeper.replay.session import prepare

_SLOW: Final = Pace(first_ms=2.5 * SLO_MS)
_WAVE: Final = 24  # concurrent requests; an objective needs 20 requests before it alerts
_MOST_WAVES: Final = 6
_OUTPUT_TOKENS: Final = 8
_POLL_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 45.0  # timeout of each phase: three evaluations of the rules, 15 s apart


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident of a run: its caller and model. The run has created its SLO. `say` prints what happens."""

    control: ControlClient
    analytics: ControlClient
    gateway_url: str
    place: Place
    model: str
    run_id: str
    say: Callable[[str], None]
    patience_seconds: float = _PATIENCE_SECONDS

    async def play(self) -> bool:
        """Play the incident; return False if a notification did not arrive in time. Raises the client's errors."""
        payers = await asyncio.to_thread(
            create_payers, self.control, [self.place], self.model, f"{self.run_id}-incident", datetime.now(UTC), 600.0
        )
        client = GatewayClient(self.gateway_url, f"{self.run_id}-incident")
        try:
            await prepare(client, ServedModel(self.model), payers)
            self.say(f"{self.model} now answers after {_SLOW.first_ms:g} ms; its objective is {SLO_MS} ms")
            if not await self._ask_until(client, payers[0], _SLOW, self._is_raised):
                self.say("no notification of the missed SLO arrived in time")
                return False
            self.say(f"{self.model} answers in time again")
            if not await self._ask_until(client, payers[0], AT_ONCE, self._is_resolved):
                self.say("no notification of the end of the alert arrived in time")
                return False
            return await self._until(self._is_delivered, self.patience_seconds)
        finally:
            await client.close()
            await asyncio.shield(asyncio.to_thread(revoke_payers, self.control, payers))

    async def _ask_until(self, client: GatewayClient, payer: Payer, pace: Pace, is_so: Callable[[], bool]) -> bool:
        """Send requests until `is_so`, doubling their number to outweigh earlier requests in the SLO's windows."""
        model, number = ServedModel(self.model), 0
        for wave in range(_MOST_WAVES):
            body = chat_body(model, "Where is my parcel?", 5, _OUTPUT_TOKENS, pace)
            for _ in range(max(1, wave)):
                chats = [Chat(number, payer.place.tenant, payer.secret, body, _OUTPUT_TOKENS) for _ in range(_WAVE)]
                await asyncio.gather(*(client.send(chat, time.monotonic()) for chat in chats))
            if await self._until(is_so, self.patience_seconds / _MOST_WAVES):
                return True
        return False

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(is_so):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    # What the store has recorded.

    def _alerts(self) -> list[dict[str, Any]]:
        try:
            rows = self.analytics.get_all("/v1/alerts")
        except TollkeeperError:
            return []  # it is busy or restarting: retried in a moment
        return [row for row in rows if row["rule"] == slo_rule_of(self.run_id)]

    def _is_raised(self) -> bool:
        return bool(self._alerts())

    def _is_resolved(self) -> bool:
        alerts = self._alerts()
        return bool(alerts) and all(row["resolved_at"] is not None for row in alerts)

    def _is_delivered(self) -> bool:
        rows = self.control.get_all("/v1/alert-deliveries")
        mine = [row for row in rows if row["channel"] == channel_of(self.run_id)]
        return all(row["ended_at"] is not None for row in mine)
