"""Mirrors the caches of engine hosts into the pools' prefix indexes, by the events that the hosts send.

A cache is mirrored from what it held at one moment, and the events since. Where an event is missing, cannot be read
or is of another block size, the mirror is dropped: the replica is chosen by load and by what is assumed of it, and
the cache is asked for again. What is wrong is said in `GET /ready`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from contracts.errors import InvalidRecord
from contracts.records import KvRecord, decode_record
from contracts.wire import KvBlocks
from gateway.routing.fleet import Fleet

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 50_000  # events kept while what the cache held is on its way
_MOST_REFUSALS: Final = 3  # in a row: a host whose events cannot be used is not asked again until it says hello

Place = tuple[str, str]  # a host's URL, a model's name there


@dataclass(slots=True)
class _Mirror:
    """One model of one host. `state` is unknown, asked, exact or load_only."""

    state: str = "unknown"
    why: str = ""
    engine: str = ""
    sequence: int = 0  # of the event that comes next
    block_size: int = 0
    held: set[int] = field(default_factory=set)  # while it is being told
    waiting: list[KvRecord] = field(default_factory=list)
    users: list[tuple[Fleet, str]] = field(default_factory=list)  # pools, and what the replica is called there
    is_under_way: bool = False  # an event was applied
    events: int = 0
    gaps: int = 0
    refusals: int = 0


class CacheMirror:
    """Follows caches by (host's URL, model), for all pools. It is a KvListener."""

    def __init__(self) -> None:
        self._mirrors: dict[Place, _Mirror] = {}
        self._asks: dict[str, Callable[[str], None]] = {}
        self.unreadable_records = 0

    # what the router calls

    def follow(self, fleet: Fleet, served: Mapping[str, Place]) -> None:
        """Mirror these caches for a pool from now on, by replica's name."""
        self.drop(fleet)
        for name, place in served.items():
            mirror = self._mirrors.setdefault(place, _Mirror())
            mirror.users.append((fleet, name))
            self._restart(place, mirror)

    def drop(self, fleet: Fleet) -> None:
        """Mirror nothing for a pool any more."""
        for place, mirror in list(self._mirrors.items()):
            mirror.users = [user for user in mirror.users if user[0] is not fleet]
            if not mirror.users:
                del self._mirrors[place]

    def status(self) -> dict[str, object]:
        """Give what GET /ready shows, by host and model."""
        return {
            f"{url} {model}": {
                "state": mirror.state,
                **({"why": mirror.why} if mirror.why else {}),
                "events": mirror.events,
                "gaps": mirror.gaps,
            }
            for (url, model), mirror in sorted(self._mirrors.items())
        }

    # what hosts' connections call

    def on_kv_host(self, url: str, ask: Callable[[str], None]) -> None:
        """Begin with a host that has introduced itself; one whose models changed is asked where it has to be."""
        self._asks[url] = ask
        for place, mirror in self._mirrors.items():
            if place[0] == url and mirror.state != "exact":
                mirror.refusals = 0
                self._restart(place, mirror)

    def on_kv_lost(self, url: str) -> None:
        """Forget what a host had: it comes back with an empty cache, or not at all."""
        self._asks.pop(url, None)
        for place, mirror in self._mirrors.items():
            if place[0] == url:
                self._forget(mirror, "unknown", "")

    def on_kv_events(self, url: str, packed: Sequence[bytes]) -> None:
        """Apply events in their order."""
        for one in packed:
            try:
                record = decode_record(one)
            except InvalidRecord as error:
                self.unreadable_records += 1
                for place, mirror in self._mirrors.items():
                    if place[0] == url:  # whose it was it does not say
                        self._refuse(place, mirror, f"an event cannot be read: {error.message}")
                continue
            if isinstance(record, KvRecord):
                self._take(url, record)

    def on_kv_blocks(self, url: str, blocks: KvBlocks) -> None:
        """Take a part of what a cache holds; with the last, the mirror is exact."""
        place = (url, blocks.model)
        mirror = self._mirrors.get(place)
        if mirror is None or mirror.state != "asked":
            return
        mirror.held.update(blocks.block_hashes)
        if not blocks.is_last:
            return
        held, mirror.held = list(mirror.held), set()
        mirror.engine, mirror.sequence, mirror.block_size = blocks.engine, blocks.sequence, blocks.block_size
        mirror.state, mirror.why, mirror.is_under_way = "exact", "", False
        for fleet, name in mirror.users:
            fleet.begin_cache(name, held)
        waiting, mirror.waiting = mirror.waiting, []
        for record in waiting:
            if record.sequence >= blocks.sequence:
                self._take(url, record)

    def _take(self, url: str, record: KvRecord) -> None:
        place = (url, record.model)
        mirror = self._mirrors.get(place)
        if mirror is None:
            return
        if mirror.state == "asked" and len(mirror.waiting) < _MOST_WAITING:
            mirror.waiting.append(record)
        if mirror.state != "exact":
            return
        if record.engine != mirror.engine:
            self._refuse(place, mirror, "the engine was started anew")
        elif record.sequence > mirror.sequence:
            mirror.gaps += 1
            missing = record.sequence - mirror.sequence
            self._refuse(place, mirror, f"{missing} events are missing before {record.sequence}")
        elif record.sequence < mirror.sequence and (mirror.is_under_way or record.sequence == 0):
            self._refuse(place, mirror, f"events began anew at {record.sequence}")  # as of a model loaded again
        elif record.sequence < mirror.sequence:
            return  # what the cache held was told after it
        elif record.event == "stored" and record.block_size != mirror.block_size:
            why = f"an event is of blocks of {record.block_size} tokens, its cache's have {mirror.block_size}"
            self._refuse(place, mirror, why)
        else:
            mirror.sequence += 1
            mirror.is_under_way = True
            mirror.events += 1
            mirror.refusals = 0
            for fleet, name in mirror.users:
                fleet.note_cache(name, record.event, record.block_hashes)

    def _refuse(self, place: Place, mirror: _Mirror, why: str) -> None:
        """Drop a mirror that cannot be right, and ask for what the cache holds, unless that has not helped."""
        if mirror.state == "load_only":
            return
        _log.warning("cache is not mirrored", extra={"host": place[0], "model": place[1], "reason": why})
        self._forget(mirror, "load_only", why)
        mirror.refusals += 1
        if mirror.refusals <= _MOST_REFUSALS:
            self._restart(place, mirror)

    def _restart(self, place: Place, mirror: _Mirror) -> None:
        ask = self._asks.get(place[0])
        self._forget(mirror, "unknown" if ask is None else "asked", mirror.why)
        if ask is not None:
            ask(place[1])

    def _forget(self, mirror: _Mirror, state: str, why: str) -> None:
        mirror.state, mirror.why = state, why
        mirror.held.clear()
        mirror.waiting.clear()
        for fleet, name in mirror.users:
            fleet.forget_cache(name)
