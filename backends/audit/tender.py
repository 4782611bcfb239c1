"""Maintains a chain while it is written: periodic checkpoints, copies of finished segments, removal of old ones."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from backends.audit.chain import AuditChain
from backends.audit.options import AuditOptions
from backends.audit.retention import cut_before
from backends.audit.shipping import ship_finished
from backends.audit.signing import AuditSigner
from backends.audit.sink import Sink, folder_of
from contracts.errors import TollkeeperError

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_KEEPING_SECONDS: Final = 600.0
_DAY_NS: Final = 86_400 * 1_000_000_000


class ChainTender:
    """Runs the periodic work on a chain in the writer's event loop; blocking parts run in a thread."""

    def __init__(
        self, chain: AuditChain, signer: AuditSigner, options: AuditOptions, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._chain = chain
        self._signer = signer
        self._options = options
        self._now_ns = now_ns
        self._sink: Sink | None = None
        self._kept_at_ns = 0
        self._last_segment = ""
        self.fault = ""  # why segments are not copied or removed

    async def run(self) -> None:
        """Run the periodic work every second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Do what is due now."""
        self._chain.tend()
        now = self._now_ns()
        is_due = now - self._kept_at_ns >= _KEEPING_SECONDS * 1e9
        if not is_due and self._chain.segment == self._last_segment:
            return
        self._kept_at_ns, self._last_segment = now, self._chain.segment
        await asyncio.to_thread(self.keep)

    def keep(self) -> None:
        """Copy finished segments to the sink and remove old ones. Blocks. Failures are logged, and retried at the next
        call.
        """
        try:
            self._keep(self._now_ns())
        except (TollkeeperError, OSError) as error:
            fault = error.message if isinstance(error, TollkeeperError) else error.strerror or type(error).__name__
            if fault != self.fault:
                _log.error("audit segments cannot be shipped to the sink", extra={"reason": fault})
            self.fault = fault
        else:
            self.fault = ""

    def _keep(self, now_ns: int) -> None:
        self._chain.sync()
        if self._options.sink:
            if self._sink is None:
                self._sink = self._options.open_sink()
            assert self._sink is not None  # an address is configured
            ship_finished(self._chain.directory, folder_of(self._chain.chain), self._sink)
        if self._options.keep_days:
            before = now_ns - self._options.keep_days * _DAY_NS
            cut_before(self._chain.directory, before, self._signer, now_ns)
