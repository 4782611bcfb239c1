"""Discovered endpoints: one target of the configuration represents all endpoints that are found.

`settings.discover` names where endpoints are found, and `{address}` in the URL stands for `HOST:PORT` of each. The
expanded snapshot has a target for each endpoint; one that joins a pool later starts slowly.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from backends.endpoints.file_reader import FileReader
from backends.endpoints.inference_pool_reader import InferencePoolReader
from backends.endpoints.kubernetes_reader import KubernetesReader
from backends.endpoints.kubernetes_watch import KubernetesApi
from backends.endpoints.source import (
    DnsSource,
    Endpoint,
    FileSource,
    InferencePoolSource,
    KubernetesSource,
    parse_source,
    shown_endpoint,
)
from backends.endpoints.watch import EndpointWatch, Reader
from contracts.errors import ConfigurationError
from contracts.serving.configuration import PoolSpec, Snapshot, TargetSpec
from contracts.serving.discovery import ADDRESS, discover_of, slow_start_of, without_discovery
from gateway.config.directory import SnapshotSource

_log = logging.getLogger(__name__)

_METRICS_URL: Final = "metrics_url"
_FIRST_ANSWER_SECONDS: Final = 2.0  # that a start, or a change, waits for new sources; below what a poll may take


class Discovery:
    """The endpoints of all sources that the configuration names. Safe to share between threads."""

    def __init__(self, api: KubernetesApi, on_change: Callable[[], None]) -> None:
        self._api = api
        self._on_change = on_change
        self._watches: dict[str, EndpointWatch] = {}

    def expanded(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with a target for each discovered endpoint. Watches only the sources that this snapshot
        names.

        A target of the configuration for which no endpoint is known stays as it is, and cannot be used.
        """
        named = {where for spec in _templates(snapshot) if (where := discover_of(spec))}
        self._watch_only(named)
        if not named:
            return snapshot
        return replace(snapshot, pools={name: self._pool(pool) for name, pool in snapshot.pools.items()})

    def faults(self) -> Mapping[str, str]:
        """Return the unavailable sources, each with the reason."""
        return {where: watch.fault for where, watch in self._watches.items() if watch.fault}

    def close(self) -> None:
        """Stop watching."""
        self._watch_only(set())

    def _watch_only(self, named: set[str]) -> None:
        begun = []
        for where in named - self._watches.keys():
            try:
                reader = _reader(where, self._api)
            except ConfigurationError as error:
                _log.error("discovery left out", extra={"source": where, "reason": error.message})
                continue
            begun.append(EndpointWatch(where, reader, self._on_change))
            self._watches[where] = begun[-1]
        for where in self._watches.keys() - named:
            self._watches.pop(where).close()
        for watch in begun:
            watch.wait(_FIRST_ANSWER_SECONDS / len(begun))

    def _pool(self, pool: PoolSpec) -> PoolSpec:
        targets = tuple(target for spec in pool.targets for target in self._targets(spec))
        return pool if targets == pool.targets else replace(pool, targets=targets)

    def _targets(self, spec: TargetSpec) -> Iterator[TargetSpec]:
        watch = self._watches.get(discover_of(spec))
        found = sorted(watch.endpoints or ()) if watch is not None else []
        if not found:
            yield spec
            return
        bare = replace(without_discovery(spec), slow_start_seconds=slow_start_of(spec))
        for endpoint in found:
            yield _of_endpoint(bare, endpoint)


class DiscoveringSource:
    """A source of snapshots with discovered targets."""

    def __init__(self, source: SnapshotSource, first: Snapshot, api: KubernetesApi) -> None:
        """Watch the sources that the first snapshot names, and wait briefly for their first answers."""
        self._source = source
        self._base = first
        self._changed = threading.Event()
        self.on_change: Callable[[], None] | None = None  # called from a thread of its own
        self.discovery = Discovery(api, self._note)
        self.first = self.discovery.expanded(first)
        self._changed.clear()

    @property
    def has_answered(self) -> bool:
        """Return whether the source has answered the poll that is in progress."""
        return self._source.has_answered

    def may_have_changed(self) -> bool:
        """Return whether a poll could find anything new."""
        return self._changed.is_set() or self._source.may_have_changed()

    def poll(self, known_revision: int) -> Snapshot | None:
        """Return a newer snapshot, or one with changed endpoints; `None` if neither has changed. Raises the errors of
        the source.
        """
        has_changed = self._changed.is_set()
        self._changed.clear()
        try:
            newer = self._source.poll(known_revision)
        except Exception:
            if has_changed:
                self._changed.set()
            raise
        if newer is not None:
            self._base = newer
        return self.discovery.expanded(self._base) if has_changed or newer is not None else None

    def close(self) -> None:
        """Stop watching and close the source."""
        self.discovery.close()
        self._source.close()

    def _note(self) -> None:
        self._changed.set()
        if self.on_change is not None:
            self.on_change()


def _templates(snapshot: Snapshot) -> Iterator[TargetSpec]:
    return (spec for pool in snapshot.pools.values() for spec in pool.targets if spec.settings)


def _of_endpoint(spec: TargetSpec, endpoint: Endpoint) -> TargetSpec:
    address = shown_endpoint(endpoint)
    settings = dict(spec.settings)
    if isinstance(page := settings.get(_METRICS_URL), str):
        settings[_METRICS_URL] = page.replace(ADDRESS, address)
    return replace(spec, id=f"{spec.id}@{address}", url=spec.url.replace(ADDRESS, address), settings=settings)


def _reader(where: str, api: KubernetesApi) -> Reader:
    match parse_source(where):
        case FileSource(path):
            return FileReader(path)
        case KubernetesSource() as service:
            return KubernetesReader(service, api)
        case InferencePoolSource() as pool:
            return InferencePoolReader(pool, api)
        case DnsSource() as name:
            from backends.endpoints.dns_reader import DnsReader  # here: most gateways ask for no SRV records

            return DnsReader(name)
