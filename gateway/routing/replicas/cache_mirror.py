"""Mirrors the caches of engine hosts into the pools' prefix indexes, from the events that the hosts send.

A mirror consists of a cache's content at one time and the events since. If an event is missing, unreadable or of
another block size, the mirror is dropped: the replica is then chosen by load and by assumed content, and the cache's
content is requested again. `GET /ready` shows the problem.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from algorithms.routing.fleet import Fleet
from contracts.engine.wire import KvBlocks
from contracts.errors import InvalidRecord
from contracts.recording.records import KvRecord, decode_record

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 50_000  # events kept while the cache's content is being received
_MOST_REFUSALS: Final = 3  # in a row: a host with unusable events is not asked again until it reconnects

Place = tuple[str, str]  # a host's URL, a model's name there


@dataclass(slots=True)
class _Mirror:
    """The mirrored cache of one model on one host. `state` is unknown, asked, exact or load_only."""

    state: str = "unknown"
    why: str = ""
    engine: str = ""
    sequence: int = 0  # of the next event
    block_size: int = 0
    held: set[int] = field(default_factory=set)  # block keys received so far
    waiting: list[KvRecord] = field(default_factory=list)
    users: list[tuple[Fleet, str]] = field(default_factory=list)  # pools, and the replica's name in each
    is_under_way: bool = False  # an event was applied
    events: int = 0
    gaps: int = 0
    refusals: int = 0


@dataclass(slots=True)
class _Due:
    """A host's answers that have not arrived yet. The last one is used, because it is the most recent."""

    answers: int = 0
    is_partway: bool = False  # a part of an answer has arrived


class CacheMirror:
    """Mirrors caches by (host URL, model), for all pools. Implements KvListener."""

    def __init__(self) -> None:
        self._mirrors: dict[Place, _Mirror] = {}
        self._due: dict[Place, _Due] = {}  # also if no pool follows the cache any more
        self._asks: dict[str, Callable[[str], None]] = {}
        self.unreadable_records = 0

    # what the router calls

    def follow(self, fleet: Fleet, served: Mapping[str, Place]) -> None:
        """Mirror these caches for a pool from now on, by replica name. Caches that it mirrors already continue."""
        before = {name: place for place, one in self._mirrors.items() for user, name in one.users if user is fleet}
        for name, place in before.items():
            if served.get(name) != place:
                fleet.forget_cache(name)
                self._leave(place, fleet, name)
        for name, place in served.items():
            if before.get(name) != place:
                mirror = self._mirrors.setdefault(place, _Mirror())
                mirror.users.append((fleet, name))
                self._restart(place, mirror)

    def drop(self, fleet: Fleet) -> None:
        """Stop mirroring caches for a pool."""
        for place, mirror in list(self._mirrors.items()):
            for user, name in list(mirror.users):
                if user is fleet:
                    self._leave(place, fleet, name)

    def status(self) -> dict[str, object]:
        """Return what GET /ready shows, by host and model."""
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
        """Start mirroring a host that has connected. If its models changed, request the content of its caches."""
        self._asks[url] = ask
        for place, due in self._due.items():
            if place[0] == url:  # a refused request, as for a model not loaded yet, gets no answer
                due.answers = int(due.is_partway)
        for place, mirror in self._mirrors.items():
            if place[0] == url and mirror.state != "exact":
                mirror.refusals = 0
                self._restart(place, mirror)

    def on_kv_lost(self, url: str) -> None:
        """Discard a host's mirror: the host returns with an empty cache, or not at all."""
        self._asks.pop(url, None)
        self._due = {place: due for place, due in self._due.items() if place[0] != url}
        for place, mirror in self._mirrors.items():
            if place[0] == url:
                self._forget(mirror, "unknown", "")

    def on_kv_events(self, url: str, packed: Sequence[bytes]) -> None:
        """Apply events in order."""
        for one in packed:
            try:
                record = decode_record(one)
            except InvalidRecord as error:
                self.unreadable_records += 1
                for place, mirror in self._mirrors.items():
                    if place[0] == url:  # the event does not say which model it belongs to
                        self._refuse(place, mirror, f"an event cannot be read: {error.message}")
                continue
            if isinstance(record, KvRecord):
                self._take(url, record)

    def on_kv_blocks(self, url: str, blocks: KvBlocks) -> None:
        """Receive a part of a cache's content. After the last part the mirror is exact. Of several requests the last
        counts.
        """
        place = (url, blocks.model)
        mirror, due = self._mirrors.get(place), self._due.get(place)
        if due is None:
            return
        due.answers = max(due.answers, 1)  # an answer that was given up at a reconnect arrives after all
        is_latest = due.answers == 1
        due.is_partway = not blocks.is_last
        due.answers -= blocks.is_last
        if mirror is None or mirror.state != "asked" or not is_latest:
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

    def on_kv_refused(self, url: str, model: str, why: str) -> None:
        """Record why a cache is not mirrored. It is requested again when the host reconnects or loads its model."""
        mirror = self._mirrors.get((url, model))
        if mirror is not None and mirror.state == "asked":
            mirror.why = f"the host refused to report its cache: {why}"

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
            self._refuse(place, mirror, "the engine restarted")
        elif record.sequence > mirror.sequence:
            mirror.gaps += 1
            missing = record.sequence - mirror.sequence
            self._refuse(place, mirror, f"{missing} events are missing before {record.sequence}")
        elif record.sequence < mirror.sequence and (mirror.is_under_way or record.sequence == 0):
            self._refuse(place, mirror, f"events restarted at {record.sequence}")  # the model was loaded again, perhaps
        elif record.sequence < mirror.sequence:
            return  # the content was reported after this event
        elif record.event == "stored" and record.block_size != mirror.block_size:
            why = f"an event has blocks of {record.block_size} tokens, the cache has blocks of {mirror.block_size}"
            self._refuse(place, mirror, why)
        else:
            mirror.sequence += 1
            mirror.is_under_way = True
            mirror.events += 1
            mirror.refusals = 0
            for fleet, name in mirror.users:
                fleet.note_cache(name, record.event, record.block_hashes)

    def _refuse(self, place: Place, mirror: _Mirror, why: str) -> None:
        """Discard a mirror that cannot be right, and request the cache's content again unless that failed before."""
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
            self._due.setdefault(place, _Due()).answers += 1
            ask(place[1])

    def _leave(self, place: Place, fleet: Fleet, name: str) -> None:
        """Stop mirroring a cache for one of a pool's replicas."""
        mirror = self._mirrors[place]
        mirror.users = [(user, known) for user, known in mirror.users if user is not fleet or known != name]
        if not mirror.users:
            del self._mirrors[place]

    def _forget(self, mirror: _Mirror, state: str, why: str) -> None:
        mirror.state, mirror.why = state, why
        mirror.held.clear()
        mirror.waiting.clear()
        for fleet, name in mirror.users:
            fleet.forget_cache(name)
