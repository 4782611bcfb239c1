"""Endpoints of a Kubernetes service: those of its EndpointSlices that are ready."""

import threading
from collections.abc import Mapping
from typing import Any

from backends.endpoints.kubernetes_watch import Collection, KubernetesApi
from backends.endpoints.source import Endpoint, KubernetesSource
from backends.endpoints.watch import Tell


class KubernetesReader:
    """Follows the slices of one service."""

    def __init__(self, source: KubernetesSource, api: KubernetesApi) -> None:
        self._port = source.port
        selector = {"labelSelector": f"kubernetes.io/service-name={source.service}"}
        self._slices = Collection(api, "discovery.k8s.io/v1", source.namespace, "endpointslices", selector)

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """Report the endpoints and each change. Raises SourceAway; the next call continues where this one ended."""
        self._slices.follow(lambda: tell(self._endpoints()), stop)

    def interrupt(self) -> None:
        """End the watch that waits for events."""
        self._slices.interrupt()

    def _endpoints(self) -> frozenset[Endpoint]:
        by_type: dict[str, set[Endpoint]] = {}
        for found in self._slices.items.values():
            port = self._port_of(found)
            if port is not None:
                by_type.setdefault(found["addressType"], set()).update(
                    (endpoint["addresses"][0], port) for endpoint in found.get("endpoints") or () if _is_ready(endpoint)
                )
        # A dual-stack service lists each pod in the slices of both address families.
        return frozenset(by_type.get("IPv4") or by_type.get("IPv6") or by_type.get("FQDN") or ())

    def _port_of(self, found: Mapping[str, Any]) -> int | None:
        for port in found.get("ports") or ():
            if port.get("port") and (not self._port or port.get("name") == self._port):
                return int(port["port"])
        return None


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """Return whether an endpoint accepts requests. A missing condition is true; a terminating one does not."""
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating") and bool(endpoint["addresses"])
