"""Failed requests cost nothing or an estimate, and a recount gives a budget back what the old rules had burned.

A whole installation calls a model server that fails on demand. The budget's spent is read from the control plane, and
the costs of single requests from the store.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from bench.load.processes import free_ports
from bench.report import Report
from contracts.access.identity import Identity
from contracts.pricing.money import pico_usd
from contracts.recording.records import RequestRecord, encode_record
from gateway.records.journal import Journal

_ROOT: Final = Path(__file__).resolve().parents[3]
_PORTS: Final = 9
_START_SECONDS: Final = 300.0
_FOLLOW_SECONDS: Final = 20.0
_TENANT: Final = "bench"
_BURNED: Final = 6
_BURNED_PICO_USD: Final = 8_332_000_000  # each: six use up a budget of 0.05 USD but for some millionths
_GOOD_PICO_USD: Final = 3 * 1_000_000 + 2 * 2_000_000  # 3 tokens in and 2 out, at 1 and 2 USD per million
_JOURNAL_BYTES: Final = 1 << 30


def measure(report: Report) -> None:
    """Count what failed requests are charged, and what is left wrong after a recount."""
    failures = 50 if report.quick else 200
    siblings = 20 if report.quick else 50
    with tempfile.TemporaryDirectory(prefix="tollkeeper-failed-") as folder, _model_server() as server:
        plant = _Installation(Path(folder), server)
        with plant.running():
            plant.set_up()
            for name, model, mode, count in (
                ("http_500", "mock", "500", failures),
                ("http_429", "mock", "429", siblings),
                ("http_400", "mock", "400", siblings),
                ("refused", "gone", "500", siblings),
                ("stream_503", "mock", "stream 503", siblings),
            ):
                charged = plant.charged_for(count, model, mode)
                report.add(f"failed_requests_{name}_charged", charged, "pico-USD", must=0, better="lower", n=count)
            before = plant.spent()
            statuses = [plant.chat("mock", "ok") for _ in range(siblings)]
            report.add("failed_requests_answered_after", statuses.count(200), "requests", must=siblings, n=siblings)
            wrong = abs(plant.spent_at_least(before + siblings * _GOOD_PICO_USD) - before - siblings * _GOOD_PICO_USD)
            report.add("failed_requests_good_difference", wrong, "pico-USD", must=0, better="lower", n=siblings)
            timed_out = plant.charged_for(3, "mock", "silent")
            report.add("failed_requests_timeouts_charged", timed_out, "pico-USD", must=1, n=3)
            spent = plant.spent()
        plant.burn()
        with plant.running():
            plant.wait(lambda: plant.stored(_BURNED), "the burned requests are in the store")
            refused = plant.chat("mock", "ok")
            report.add("failed_requests_burned_budget_refuses", refused, "HTTP status", must=429)
            plant.recount()
            plant.wait(lambda: plant.chat("mock", "ok") == 200, "the budget answers again")
            wrong = abs(plant.spent_at_least(spent + _GOOD_PICO_USD) - spent - _GOOD_PICO_USD)
            report.add("failed_requests_recount_difference", wrong, "pico-USD", must=0, better="lower", n=_BURNED)


class _Server(ThreadingHTTPServer):
    """A model server that does what `mode` says."""

    daemon_threads = True
    mode = "ok"

    def handle_error(self, *_: Any) -> None:
        """Keep quiet: clients that time out leave."""


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        mode = self.server.mode  # type: ignore[attr-defined]  # of a _Server
        if mode == "silent":
            time.sleep(2)
            return
        status = 200 if mode == "ok" else int(mode.split()[-1])
        message = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        answer: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "model": "mock"}
        answer |= {"choices": [message], "usage": usage}
        body = json.dumps(answer if status == 200 else {"error": {"message": "no"}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def _model_server() -> Iterator[_Server]:
    server = _Server(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Installation:
    """`tollkeeper up` in a folder, with one tenant under a hard budget of 0.05 USD."""

    def __init__(self, home: Path, server: _Server) -> None:
        self._home = home
        self._data = home / "data"
        self._server = server
        self._base = free_ports(_PORTS)
        self._key = ""
        self._budget = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it, until the end of the block."""
        log = self._home / "up.log"
        log.write_text("")
        command = [sys.executable, "-m", "tollkeeper", "up", "--data", str(self._data), "--port-base", str(self._base)]
        with log.open("a") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._home, env=self._environment())
        try:
            deadline = time.monotonic() + _START_SECONDS
            while "Tollkeeper is ready" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"tollkeeper up is not ready:\n{log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def set_up(self) -> None:
        """Create the tenant, its key and budget, and two models, of which one has no server."""
        self._control("/v1/tenants", {"id": _TENANT, "name": _TENANT})
        self._key = self._control(f"/v1/tenants/{_TENANT}/keys", {"name": "app"})["secret"]
        urls = {"mock": f"http://127.0.0.1:{self._server.server_port}/v1", "gone": "http://127.0.0.1:1/v1"}
        for name, url in urls.items():
            self._control("/v1/pools", {"id": name})
            settings = {"timeouts": {"first_token": 0.5}}
            target = {"id": f"{name}-1", "kind": "openai_http", "url": url, "settings": settings}
            self._control(f"/v1/pools/{name}/targets", target)
            self._control(f"/v1/pools/{name}", {"failures": {"retries": 0, "breaker": None}}, "PATCH")
            self._control("/v1/models", {"id": name, "pool": name})
            price = {"model": name, "version": f"{name}/1", "valid_from": "2020-01-01T00:00:00Z"}
            self._control("/v1/prices", price | {"usd_per_mtok": {"input_text": "1", "output_text": "2"}})
        budget = {"level": "tenant", "period": "total", "amount_usd": "0.05"}
        self._budget = self._control(f"/v1/tenants/{_TENANT}/budgets", budget)["id"]
        self.wait(lambda: self.chat("mock", "ok") == 200, "the gateway knows the model")
        self.spent_at_least(_GOOD_PICO_USD)

    def chat(self, model: str, mode: str) -> int:
        """Ask the model while its server behaves so; return the status."""
        self._server.mode = mode
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4000}
        body["stream"] = mode.startswith("stream")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._base}/v1/chat/completions",
            json.dumps(body).encode(),
            {"authorization": f"Bearer {self._key}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                reply.read()
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code

    def charged_for(self, count: int, model: str, mode: str) -> int:
        """Return what the budget is charged for failing requests."""
        before = self.spent()
        for _ in range(count):
            self.chat(model, mode)
        time.sleep(2.5)  # gateways report what is spent every second
        return self.spent() - before

    def spent(self) -> int:
        """Return what the budget has spent, in pico-USD."""
        [subject] = self._control(f"/v1/tenants/{_TENANT}/budgets/{self._budget}")["state"]["subjects"]
        return pico_usd(Decimal(subject["spent"]))

    def spent_at_least(self, expected: int) -> int:
        """Return what the budget has spent, once it is as much as expected."""
        deadline = time.monotonic() + _FOLLOW_SECONDS
        while self.spent() < expected and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(2.5)
        return self.spent()

    def burn(self) -> None:
        """Leave requests in the gateway's journal as earlier releases recorded them: failed and fully charged."""
        journal = Journal(self._data / "journal", max_bytes=_JOURNAL_BYTES)
        for _ in range(_BURNED):
            record = RequestRecord(
                request_id=uuid4().bytes,
                started_at_ns=time.time_ns(),
                duration_ns=1_000_000,
                who=Identity(_TENANT),
                model="mock",
                outcome="error",
                status=502,
                error_code="upstream_error",
                charged_pico_usd=_BURNED_PICO_USD,
                attempts=1,
            )
            journal.append(record.started_at_ns, encode_record(record))
        journal.close()

    def stored(self, count: int) -> bool:
        """Return whether the given number of requests that were charged for nothing are in the store."""
        secret = SecretFiles(self._data / "secrets").get("store_reader")
        assert secret is not None
        client = StoreClient(StoreAddress(f"http://127.0.0.1:{self._base + 7}", "tollkeeper", "reader", secret))
        try:
            [row] = client.query("SELECT count() AS found FROM requests WHERE cost_usd IS NULL AND charged_usd > 0.008")
        finally:
            client.close()
        return int(str(row["found"])) >= count

    def recount(self) -> None:
        """Run the command, as an operator does."""
        command = ["-m", "tollkeeper", "budgets", "recount", self._budget, "--yes", "--data", str(self._data)]
        subprocess.run([sys.executable, *command], check=True, env=self._environment(), stdout=subprocess.DEVNULL)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds. Raise RuntimeError if it does not in time."""
        deadline = time.monotonic() + _FOLLOW_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {_FOLLOW_SECONDS:g} s: {what}")
            time.sleep(0.2)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        return {**kept, "PYTHONPATH": str(_ROOT), "COLUMNS": "200"}

    def _control(self, path: str, body: Mapping[str, object] | None = None, method: str = "") -> Any:
        token = SecretFiles(self._data / "secrets").get("admin_token")
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._base + 1}{path}",
            None if body is None else json.dumps(body).encode(),
            {"authorization": f"Bearer {token}", "content-type": "application/json"},
            method=method or ("GET" if body is None else "POST"),
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:300]}") from error
