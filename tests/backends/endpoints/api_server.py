"""A Kubernetes API server of slices, InferencePools and pods: lists, streams watches, and fails as real ones do."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any
from urllib.parse import parse_qs, urlsplit

_END = object()


def slice_of(
    name: str, *addresses: str, port: int = 8000, family: str = "IPv4", conditions: Mapping[str, bool] = {}
) -> dict[str, Any]:
    """Return an EndpointSlice of the service `vllm`, without its version."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "vllm"}},
        "addressType": family,
        "ports": [{"name": "metrics", "port": 9}, {"name": "http", "port": port}],
        "endpoints": [{"addresses": [address], "conditions": conditions} for address in addresses],
    }


def inference_pool_of(name: str, *ports: int, **labels: str) -> dict[str, Any]:
    """Return an InferencePool that selects pods of these labels, without its version."""
    return {
        "kind": "inferencepools",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "targetPorts": [{"number": port} for port in ports]},
    }


def pod_of(name: str, address: str, *, is_ready: bool = True, deleted: str = "", **labels: str) -> dict[str, Any]:
    """Return a pod, without its version."""
    return {
        "kind": "pods",
        "metadata": {"name": name, "labels": labels, **({"deletionTimestamp": deleted} if deleted else {})},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": str(is_ready)}]},
    }


def _is_wanted(wanted: Mapping[str, str], found: Mapping[str, Any]) -> bool:
    """Return whether an object, or a bookmark, is of the collection and the selectors of a request."""
    metadata = found["metadata"]
    if "name" not in metadata:
        return True
    if found.get("kind", "endpointslices") != wanted["path"].rpartition("/")[2]:
        return False
    labels = dict(each.split("=") for each in wanted.get("labelSelector", "").split(",") if each)
    fields = dict(each.split("=") for each in wanted.get("fieldSelector", "").split(",") if each)
    return (
        labels.items() <= metadata.get("labels", {}).items()
        and fields.get("metadata.name", metadata["name"]) == metadata["name"]
    )


class ApiServer:
    """Serves one namespace. Each change has a number, from which a watch goes on."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.version = 100
        self.oldest = 100  # a watch from an older version is told 410
        self.page = 500
        self.slices: dict[str, dict[str, Any]] = {}
        self.requests: list[dict[str, str]] = []
        self.status = 200  # of every answer from now on
        self._log: list[tuple[int, dict[str, Any]]] = []
        self._watches: list[Queue[Any]] = []
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def put(self, found: dict[str, Any]) -> None:
        """Make or change a slice."""
        name = found["metadata"]["name"]
        self._change("MODIFIED" if name in self.slices else "ADDED", found)

    def delete(self, name: str) -> None:
        self._change("DELETED", self.slices[name])

    def bookmark(self) -> None:
        """Tell watches how far they are."""
        with self._lock:
            self.version += 1
            event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}
            self._send(event)

    def end_watches(self) -> None:
        """End them as a server does whose time for them is over."""
        with self._lock:
            for watch in self._watches:
                watch.put(_END)

    def expire(self) -> None:
        """Forget the past, and tell watches that are open so."""
        with self._lock:
            self.oldest = self.version
            self._log = []
            self._send({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})

    def change_unseen(self, found: dict[str, Any]) -> None:
        """Change a slice while nobody can see it: watches have ended and what happened is forgotten."""
        with self._lock:
            self.version += 10
            self.oldest = self.version
            self._log = []
            self._keep(found)

    @property
    def watching(self) -> int:
        return len(self._watches)

    def close(self) -> None:
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()

    def _change(self, kind: str, found: dict[str, Any]) -> None:
        with self._lock:
            self.version += 1
            kept = self._keep(found)
            if kind == "DELETED":
                del self.slices[found["metadata"]["name"]]
            event = {"type": kind, "object": kept}
            self._log.append((self.version, event))
            self._send(event)

    def _keep(self, found: dict[str, Any]) -> dict[str, Any]:
        kept = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
        self.slices[found["metadata"]["name"]] = kept
        return kept

    def _send(self, event: dict[str, Any]) -> None:
        for watch in self._watches:
            watch.put(event)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        wanted = {name: values[0] for name, values in parse_qs(parts.query).items()}
        wanted["path"] = parts.path
        self.requests.append(wanted)
        if self.status != 200:
            _reply(handler, self.status, {"code": self.status})
        elif self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            _reply(handler, 401, {"code": 401})
        elif "watch" in wanted:
            self._watch(handler, int(wanted["resourceVersion"]), wanted)
        else:
            self._list(handler, int(wanted.get("continue", "0")), wanted)

    def _list(self, handler: BaseHTTPRequestHandler, begin: int, wanted: Mapping[str, str]) -> None:
        with self._lock:
            names = sorted(name for name, found in self.slices.items() if _is_wanted(wanted, found))
            items = [self.slices[name] for name in names[begin : begin + self.page]]
            metadata = {"resourceVersion": str(self.version)}
            if begin + self.page < len(names):
                metadata["continue"] = str(begin + self.page)
        _reply(handler, 200, {"items": items, "metadata": metadata})

    def _watch(self, handler: BaseHTTPRequestHandler, version: int, wanted: Mapping[str, str]) -> None:
        with self._lock:
            if version < self.oldest:
                _reply(handler, 410, {"code": 410})
                return
            queue: Queue[Any] = Queue()
            for number, event in self._log:
                if number > version:
                    queue.put(event)
            self._watches.append(queue)
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for line in _lines(queue, wanted):
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            handler.close_connection = True
        finally:
            with self._lock:
                self._watches.remove(queue)


def _lines(queue: "Queue[Any]", wanted: Mapping[str, str]) -> Iterator[bytes]:
    while (event := queue.get()) is not _END:
        if event["type"] == "ERROR" or _is_wanted(wanted, event["object"]):
            yield json.dumps(event).encode() + b"\n"


def _reply(handler: BaseHTTPRequestHandler, status: int, body: object) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
