"""A signed chain of files outside the control database that confirms its audit log, with every entry's hash.

A person who can write to the database can rebuild its chain, and cut its end; the files prove it. They contain no
content of entries, so that it can be erased in the database.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from backends.audit.chain import AuditChain
from backends.audit.entries import KIND_ACCEPTED, KIND_CONTROL, AcceptedLine, ControlFacts, ControlLine, body_of
from backends.audit.options import AuditOptions
from backends.audit.places import DirectoryPlace
from backends.audit.signing import AuditSigner
from backends.audit.tender import ChainTender
from backends.control.audit_chain import WITNESS_BEGINS, begun_chains, read_rows
from backends.control.change_detector import ChangeDetector
from backends.control.changes import Author, begin_change
from backends.control.database import ControlDatabase
from contracts.errors import TollkeeperError

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_ASK_EVERY_SECONDS: Final = 5.0  # although the files of SQLite say that nothing has changed
_AT_ONCE: Final = 10_000
_WITNESS: Final = f'"kind":"{KIND_CONTROL}"'.encode()
_ACCEPTANCE: Final = f'"kind":"{KIND_ACCEPTED}"'.encode()


class AuditWitness:
    """Copies the hashes of the database's audit entries into a file chain, once a second."""

    def __init__(
        self,
        database: ControlDatabase,
        directory: Path,
        signer: AuditSigner,
        options: AuditOptions,
        writer: str = "control",
        now_ns: Callable[[], int] = time.time_ns,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Accept the dependencies. `leads` returns whether this control plane is the one of several that writes the
        chain.
        """
        self._leads = leads
        self._database = database
        self._directory = directory
        self._signer = signer
        self._options = options
        self._writer = writer
        self._now_ns = now_ns
        self._seen = 0
        self._chain: AuditChain | None = None
        self._tender: ChainTender | None = None
        self._look = ChangeDetector(database.url, _ASK_EVERY_SECONDS)

    async def run(self) -> None:
        """Copy new hashes every second, until cancelled."""
        is_away = is_begun = False
        while True:
            try:
                if not self._leads():
                    await asyncio.to_thread(self.close)
                    is_begun = False
                else:
                    if not is_begun:
                        await asyncio.to_thread(self.begin)
                        is_begun = True
                    await self.look()
                is_away = False
            except TollkeeperError as error:
                if not is_away:
                    _log.warning("audit_not_witnessed", extra={"reason": error.message})
                is_away = True
            except Exception:  # the edge of the task: if it ended, nothing would confirm new entries
                if not is_away:
                    _log.exception("audit_not_witnessed")
                is_away = True
            await asyncio.sleep(_LOOK_SECONDS)

    def begin(self) -> None:
        """Record in the database, once, the name of the file chain that confirms it.

        If that chain is missing later, verification reports a fault.


        Raises ControlUnavailable, and ConfigurationError while another control plane of this directory does it.
        """
        if not self._leads():
            return
        chain, _ = self._opened()
        with self._database.session() as session:
            if chain.chain not in begun_chains(session):
                author = Author("control plane", datetime.fromtimestamp(self._now_ns() / 1e9, UTC))
                begin_change(session, author, WITNESS_BEGINS, chain.chain)

    async def look(self) -> int:
        """Add new entries to the chain; return their number.

        Raises ControlUnavailable, and ConfigurationError while another control plane of this directory does it.
        """
        if not self._leads():
            return 0
        chain, tender = self._opened()
        found = await asyncio.to_thread(self._read) if self._look.may_have_changed() else []
        for entry, digest in found:
            if not chain.append(KIND_CONTROL, ControlFacts(self._now_ns(), entry, digest)):
                self._look.forget()
                break
            self._seen = entry
        await tender.look()
        return len(found)

    def close(self) -> None:
        """Sign all entries, send them to the sink, and close the chain. Blocks.

        Another control plane may lead next, which has this chain from the sink alone.
        """
        if self._chain is not None and self._tender is not None:
            if self._options.sink:
                self._chain.rotate()
                self._tender.keep()
            self._chain.close()
            self._chain = None

    def _opened(self) -> tuple[AuditChain, ChainTender]:
        if self._chain is None or self._tender is None:
            chain = AuditChain(self._directory, self._writer, self._signer, now_ns=self._now_ns)
            self._seen = last_witnessed(self._directory)
            self._chain, self._tender = chain, ChainTender(chain, self._signer, self._options, self._now_ns)
        return self._chain, self._tender

    def _read(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        with self._look.reading(), self._database.session() as session:
            for row in read_rows(session, after=self._seen):
                if not row.is_chained:
                    continue  # not an entry that Tollkeeper wrote; verification names it
                found.append((row.id, row.hash))
                if len(found) >= _AT_ONCE:
                    break
        if len(found) >= _AT_ONCE:
            self._look.forget()  # there may be more
        return found


def last_witnessed(directory: Path) -> int:
    """Return the number of the last entry that a chain confirms; 0 if there is none.

    After an accepted restore it continues from there: the restored database reuses the following numbers.
    """
    place = DirectoryPlace(directory)
    for segment in reversed(place.segments()):
        last: int | None = None
        for line in place.lines(segment):
            if line.endswith(b"\n") and _WITNESS in line:
                last = msgspec.json.decode(body_of(line), type=ControlLine).entry
            elif line.endswith(b"\n") and _ACCEPTANCE in line:
                last = msgspec.json.decode(body_of(line), type=AcceptedLine).entry
        if last is not None:
            return last
    return 0
