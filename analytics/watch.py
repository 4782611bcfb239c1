"""The loops of the analytics process, which evaluate alert rules, send notifications, judge answers and run periodic
jobs until cancelled. An error is logged once and the loop continues, so that alerts still work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Final

from analytics.alerts.dispatcher import Dispatcher
from analytics.alerts.evaluator import Evaluation, Evaluator
from contracts.errors import TollkeeperError

_log = logging.getLogger(__name__)

_SEND_SECONDS: Final = 1.0
_JUDGE_SECONDS: Final = 60.0
_CHORE_SECONDS: Final = 300.0


class Watch:
    """Runs the loops as tasks of the running event loop."""

    def __init__(
        self,
        evaluator: Evaluator,
        dispatcher: Dispatcher,
        judge: Callable[[], Awaitable[int]] | None,
        evaluate_seconds: float,
        now: Callable[[], datetime],
        chores: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        """`chores` are blocking periodic jobs, run every five minutes, each in its own task."""
        self._evaluator = evaluator
        self._dispatcher = dispatcher
        self._judge = judge
        self._evaluate_seconds = evaluate_seconds
        self._now = now
        self._chores = chores or {}
        self._faults: dict[str, str] = {}
        self._last: Evaluation | None = None
        self._looked_at: datetime | None = None

    async def run(self) -> None:
        """Run until cancelled. An evaluation in progress is completed, and its lease released."""
        loops = [
            self._forever("evaluate", self._look, self._evaluate_seconds),
            self._forever("send", self._dispatcher.look, _SEND_SECONDS),
        ]
        if self._judge is not None:
            loops.append(self._forever("judge", self._judge, _JUDGE_SECONDS))
        for name, chore in self._chores.items():
            loops.append(self._forever(name, partial(_do, chore), _CHORE_SECONDS))
        try:
            await asyncio.gather(*loops)
        finally:
            await asyncio.shield(asyncio.to_thread(self._give_back))

    def state(self) -> dict[str, object]:
        """Return the last evaluation's time, skipped rules with reasons, and errors."""
        last = self._last
        return {
            "looked_at": None if self._looked_at is None else self._looked_at.isoformat(),
            "settled": None if last is None else asdict(last.settled),
            "skipped": {} if last is None else dict(last.skipped),
            "faults": dict(self._faults),
        }

    async def _look(self) -> int:
        # Shielded: a thread continues when its task is cancelled, and must release the lease.
        looked = await asyncio.shield(asyncio.to_thread(self._evaluator.look, self._now()))
        if looked is not None:
            self._last, self._looked_at = looked, self._now()
            for kind, reason in looked.skipped.items():
                _log.warning("alert_rules_skipped", extra={"kind": kind, "reason": reason})
        return 0

    async def _forever(self, name: str, step: Callable[[], Awaitable[int]], seconds: float) -> None:
        while True:
            try:
                await step()
                if self._faults.pop(name, ""):
                    _log.info("watch_goes_on", extra={"loop": name})
            except TollkeeperError as error:
                self._note(name, error.message)
            except Exception as error:  # the task's boundary
                if name not in self._faults:
                    _log.exception("watch_failed", extra={"loop": name})
                self._faults[name] = type(error).__name__
            await asyncio.sleep(seconds)

    def _note(self, name: str, reason: str) -> None:
        if self._faults.get(name) != reason:
            _log.warning("watch_waits", extra={"loop": name, "reason": reason})
        self._faults[name] = reason

    def _give_back(self) -> None:
        try:
            self._evaluator.stop(self._now())
        except TollkeeperError as error:
            _log.warning("lease_kept", extra={"reason": error.message})


async def _do(chore: Callable[[], int]) -> int:
    # Shielded, like an evaluation: a write in progress is completed.
    return await asyncio.shield(asyncio.to_thread(chore))
