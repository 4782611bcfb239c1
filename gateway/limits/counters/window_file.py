"""Persists sliding windows periodically, so that a restart does not reset daily limits.

Charges between the last write and a `kill -9` are lost: at most those of ten seconds. A clean stop writes everything.
Windows of a second are not stored.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from backends.processes.beat import until_beat
from contracts.rules.limits import LimitSpec, Window

_log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 10.0
_MOST_A_TURN: Final = 200  # counters copied in one turn of the event loop: well below a millisecond
_VERSION: Final = 1

Charges = list[tuple[int, int]]  # bucket number since 1970, amount charged in it


class WindowCounter(Protocol):
    """The part of a sliding counter that this module uses."""

    @property
    def rule(self) -> LimitSpec: ...
    @property
    def subject(self) -> str: ...
    def charges(self, now_ns: int) -> Charges: ...
    def restore(self, charges: Charges, now_ns: int) -> None: ...


class _Kept(msgspec.Struct, array_like=True, gc=False):
    rule: str
    subject: str
    window: Window
    charges: Charges


class _File(msgspec.Struct, array_like=True):
    version: int
    kept: list[_Kept]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_File)


class WindowFile:
    """One file with the charges of this process's sliding windows."""

    def __init__(self, path: Path, counters: Callable[[], Iterable[WindowCounter]], clock: Callable[[], int]) -> None:
        self._path = path
        self._counters = counters
        self._clock = clock
        self.is_broken = False  # the last write failed

    def restore(self, open_limit: Callable[[LimitSpec, str], WindowCounter], limits: Iterable[LimitSpec]) -> None:
        """Charge the counters of these limits with what their windows contained. An unreadable file is renamed and
        skipped.
        """
        rules = {limit.id: limit for limit in limits}
        now_ns = self._clock()
        for kept in self._read():
            rule = rules.get(kept.rule)
            if rule is not None and rule.window == kept.window:
                open_limit(rule, kept.subject).restore(kept.charges, now_ns)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_EVERY_SECONDS))
            await self.write()

    async def write(self) -> None:
        """Write the charges of all windows, in short turns that do not block the event loop."""
        kept: list[_Kept] = []
        for number, counter in enumerate(list(self._counters())):
            if number % _MOST_A_TURN == _MOST_A_TURN - 1:
                await asyncio.sleep(0)
            window = counter.rule.window
            if window is not None and window != "second" and (charges := counter.charges(self._clock())):
                kept.append(_Kept(counter.rule.id, counter.subject, window, charges))
        await asyncio.to_thread(self._save, kept)

    def _save(self, kept: list[_Kept]) -> None:
        beside = self._path.with_suffix(".new")
        try:
            beside.write_bytes(_encoder.encode(_File(_VERSION, kept)))
            beside.chmod(0o600)
            beside.replace(self._path)
        except OSError as error:
            if not self.is_broken:
                _log.error("rate limit windows cannot be written", extra={"reason": error.strerror})
            self.is_broken = True
            return
        self.is_broken = False

    def _read(self) -> list[_Kept]:
        try:
            found = _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            _log.error("rate limit windows of the last run cannot be read", extra={"reason": type(error).__name__})
            return []
        return found.kept if found.version == _VERSION else []
