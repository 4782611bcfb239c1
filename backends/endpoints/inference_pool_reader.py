"""Endpoints of an InferencePool (Gateway API Inference Extension v1): its ready pods, at each of its target ports."""

import threading
from collections.abc import Mapping
from typing import Any, Final

from backends.endpoints.kubernetes_watch import Collection, KubernetesApi
from backends.endpoints.source import Endpoint, InferencePoolSource
from backends.endpoints.watch import SourceAway, Tell

_GROUP: Final = "inference.networking.k8s.io/v1"
_JOIN_SECONDS: Final = 5.0


class InferencePoolReader:
    """Follows a pool, and in another thread the pods that it selects."""

    def __init__(self, source: InferencePoolSource, api: KubernetesApi) -> None:
        self._api = api
        self._source = source
        selector = {"fieldSelector": f"metadata.name={source.name}"}
        self._pools = Collection(api, _GROUP, source.namespace, "inferencepools", selector)
        self._halt = threading.Event()
        self._fault: SourceAway | None = None
        self._selector = ""
        self._ports: tuple[int, ...] = ()
        self._pods: Collection | None = None
        self._pods_halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._one_teller = threading.Lock()

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """Report the endpoints and each change. Raises SourceAway; the next call continues where this one ended."""
        self._halt, self._fault = threading.Event(), None
        if stop.is_set():  # checked after setting what `interrupt` uses
            return
        try:
            if self._pods is not None:
                self._follow_pods(self._pods, tell)
            self._pools.follow(lambda: self._look_at_pool(tell), self._halt)
        finally:
            self._leave_pods()
        if self._fault is not None:
            raise self._fault

    def interrupt(self) -> None:
        """End the watches that wait for events."""
        self._halt.set()
        self._pools.interrupt()

    def _look_at_pool(self, tell: Tell) -> None:
        pool = self._pools.items.get(self._source.name)
        selector, self._ports = _stated(pool)
        if selector != self._selector:
            self._leave_pods()
            self._selector, self._pods = selector, None
            if selector:
                wanted = {"labelSelector": selector}
                self._pods = Collection(self._api, "", self._source.namespace, "pods", wanted)
                self._follow_pods(self._pods, tell)
                return  # reported once the pods have been listed
        if self._pods is None or self._pods.is_listed:
            self._tell(tell)

    def _follow_pods(self, pods: Collection, tell: Tell) -> None:
        halt = self._pods_halt = threading.Event()

        def run() -> None:
            try:
                pods.follow(lambda: self._tell(tell), halt)
            except SourceAway as error:
                self._fault = error
                self._halt.set()
                self._pools.interrupt()

        self._thread = threading.Thread(target=run, name=f"pods of {self._source.name}", daemon=True)
        self._thread.start()

    def _leave_pods(self) -> None:
        if self._thread is not None and self._pods is not None:
            self._pods_halt.set()
            self._pods.interrupt()
            self._thread.join(_JOIN_SECONDS)
            self._thread = None

    def _tell(self, tell: Tell) -> None:
        with self._one_teller:
            pods = () if self._pods is None else tuple(self._pods.items.values())
            ready = [pod["status"]["podIP"] for pod in pods if _is_ready(pod)]
            tell(frozenset[Endpoint]((address, port) for address in ready for port in self._ports))


def _stated(pool: Mapping[str, Any] | None) -> tuple[str, tuple[int, ...]]:
    """Return a pool's pod selector and target ports; empty ones if the pool does not exist."""
    if pool is None:
        return "", ()
    spec = pool["spec"]
    labels = spec["selector"]["matchLabels"]
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels)), tuple(
        int(port["number"]) for port in spec["targetPorts"]
    )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod accepts requests; one that is being deleted does not."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") or not status.get("podIP"):
        return False
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )
