"""Prices that were missing, wrong, lost or changed without a word.

A control plane gets a target for each model name of docs/providers.md, and `tollkeeper prices import` must price all
of them; it must refuse to end its cards in the past. A gateway asks a server that answers at service tiers and counts
audio, and its records are held against the cards.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from bench.load.gateway_process import ROOT, MeasuredGateway, environment
from bench.load.processes import PinnedProcess, free_ports
from bench.report import Report
from contracts.recording.records import RequestRecord, decode_record
from gateway.records.journal import Journal, unpack_entry

_PREFIXES: Final = "anthropic|gemini|bedrock|vertex_ai|azure|openrouter|mistral|xai|openai|groq"
_NO_MODEL: Final = {"azure/our-chat", "azure/eu/gpt-4o-2024-11-20"}  # of which the page says that they have no price
_KEY: Final = "tk-" + "P" * 43
_IN, _OUT, _AUDIO = 1000, 100, 400
_STANDARD: Final = (1_000_000, 2_000_000)  # pico-USD per token, in and out
_TIERS: Final = {"flex": (500_000, 1_000_000), "priority": (3_000_000, 6_000_000)}
# What is asked for, what the server says it answered at, and the tier that the record is to name.
_CASES: Final = (
    ("", "", ""),
    ("", "default", ""),
    ("", "priority", "priority"),
    ("auto", "priority", "priority"),
    ("flex", "flex", "flex"),
    ("flex", "", "flex"),
    ("flex", "default", ""),
    ("priority", "default", ""),
    ("scale", "scale", "scale"),
)


def measure(report: Report) -> None:
    """Count hosted names without a price, wrong tiers, lost amounts, and cards that ended in the past silently."""
    with tempfile.TemporaryDirectory(prefix="prices-") as home:
        names = sorted({*re.findall(rf"(?:{_PREFIXES})/[\w.:@/-]*\w", _page())} - _NO_MODEL)
        with _control_plane(Path(home)) as control:
            unpriced = _without_price(control, names)
            ended, asked = _ended_silently(control)
        report.add("prices_hosted_names_without_a_price", unpriced, "names", must=0, better="lower", n=len(names))
        wrong, lost, of = _at_the_gateway(Path(home))
        report.add("prices_requests_at_the_wrong_tier", wrong, "requests", must=0, better="lower", n=of)
        report.add("prices_known_amounts_lost", lost, "pico-USD", must=0, better="lower", n=2)
        report.add("prices_cards_ended_in_the_past_silently", ended, "cards", must=0, better="lower", n=asked)


def _page() -> str:
    return (ROOT / "docs" / "providers.md").read_text()


class _ControlPlane:
    """A control plane of its own, and the commands beside it."""

    def __init__(self, home: Path) -> None:
        self.data = home / "control"
        self.data.mkdir()
        self._port = free_ports()
        self.environment = {**environment(self.data), "TOLLKEEPER_CONTROL_PORT": str(self._port)}
        self.run("-m", "migrations", "--only", "control")
        self.process = PinnedProcess(
            "control", [sys.executable, "-m", "gateway.control"], 0, self.data, **self.environment
        )
        self.process.wait_for(self._is_there)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-500:]}")
        return done.stdout

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        token = (self.data / "secrets" / "admin_token").read_text().strip()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def _is_there(self) -> bool:
        try:
            return self.ask("GET", "/v1/prices")[0] == 200
        except OSError:
            return False


@contextmanager
def _control_plane(home: Path) -> Iterator[_ControlPlane]:
    control = _ControlPlane(home)
    try:
        yield control
    finally:
        control.process.stop()


def _without_price(control: _ControlPlane, names: list[str]) -> int:
    for number, name in enumerate(names):
        target = {"id": "t", "kind": "litellm", "model": name, "provider": name.partition("/")[0], "key_ref": "env:K"}
        for path, body in (
            ("/v1/pools", {"id": f"pool-{number}"}),
            (f"/v1/pools/pool-{number}/targets", target),
            ("/v1/models", {"id": f"model-{number}", "pool": f"pool-{number}"}),
        ):
            status, said = control.ask("POST", path, body)
            if status != 201:
                raise RuntimeError(f"POST {path} was answered {status}: {said}")
    control.run("-m", "tollkeeper", "prices", "import", "--data", str(control.data), "--json")
    priced = {row["model"] for row in control.ask("GET", "/v1/prices?limit=1000")[1]["data"]}
    return sum(f"model-{number}" not in priced for number in range(len(names)))


def _ended_silently(control: _ControlPlane) -> tuple[int, int]:
    rates = {"input_text": "1", "output_text": "2"}
    costs = {f"{kind}_usd_per_mtok": "1" for kind in ("input", "cached_input", "output")}
    ended = 0
    past = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    cards: tuple[tuple[str, dict[str, object]], ...] = (
        ("/v1/prices", {"usd_per_mtok": rates}),
        ("/v1/standard-costs", {**costs}),
    )
    for number, (path, prices) in enumerate(cards):
        version = f"ended-{number}"
        status, _ = control.ask("POST", path, {"model": version, "version": version, **prices})
        if status != 201:
            raise RuntimeError(f"POST {path} was answered {status}")
        ended += control.ask("PATCH", f"{path}/{version}", {"valid_to": past})[0] == 200
    return ended, len(cards)


class _Server(BaseHTTPRequestHandler):
    """Answers chats at the service tier that the prompt names, and counts audio where it says so."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind, _, tier = str(asked["messages"][0]["content"]).partition(":")
        usage: dict[str, Any] = {"prompt_tokens": _IN, "completion_tokens": _OUT, "total_tokens": _IN + _OUT}
        if kind == "audio":
            usage["prompt_tokens_details"] = {"audio_tokens": _AUDIO}
        message = {"role": "assistant", "content": "Hi"}
        choice = {"index": 0, "message": message, "delta": message, "finish_reason": "stop"}
        body: dict[str, Any] = {"id": "x", "model": "m", "choices": [choice], "usage": usage}
        body |= {"service_tier": tier} if tier else {}
        data, content_type = json.dumps(body).encode(), "application/json"
        if asked.get("stream"):
            data, content_type = b"data: %b\n\ndata: [DONE]\n\n" % data, "text/event-stream"
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Do nothing."""


def _at_the_gateway(home: Path) -> tuple[int, int, int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        port = free_ports()
        gateway = _gateway(home, int(server.server_address[1]), port)
        try:
            for stream in (False, True):
                for asked, answered, _ in _CASES:
                    _chat(port, f"text:{answered}", stream, {"service_tier": asked} if asked else {})
                _chat(port, "audio:", stream, {})
        finally:
            gateway.stop()
        records = _records(gateway.data)
    finally:
        server.shutdown()
        server.server_close()
    expected = [case for _ in range(2) for case in (*_CASES, None)]
    if len(records) != len(expected):
        raise RuntimeError(f"{len(records)} of {len(expected)} requests were recorded")
    wrong = lost = 0
    for record, case in zip(records, expected, strict=True):
        if case is None:
            known = (_IN - _AUDIO) * _STANDARD[0] + _OUT * _STANDARD[1]
            lost += known - (record.cost_pico_usd or 0)
            continue
        rates = _TIERS.get(case[2], None if case[2] else _STANDARD)
        cost = None if rates is None else _IN * rates[0] + _OUT * rates[1]
        wrong += record.cost_pico_usd != cost
    return wrong, lost, 2 * len(_CASES)


def _gateway(home: Path, upstream: int, port: int) -> MeasuredGateway:
    url = f"http://127.0.0.1:{upstream}/v1"
    card: dict[str, Any] = {"model": "m", "version": "m/1", "usd_per_mtok": _usd(_STANDARD)}
    config = {
        "keys": [{"key": _KEY, "tenant": "acme", "id": "key_1"}],
        "pools": [{"name": "pool", "targets": [{"name": "t", "kind": "openai_http", "url": url}]}],
        "models": [{"name": "m", "pool": "pool"}],
    }
    tiers = {name: _usd(rates) for name, rates in _TIERS.items()}
    try:
        return MeasuredGateway("gateway", 0, home, {**config, "prices": [card | {"service_tiers": tiers}]}, port)
    except RuntimeError:  # one whose cards know no tiers is measured without them
        return MeasuredGateway("without-tiers", 0, home, {**config, "prices": [card]}, port)


def _usd(rates: tuple[int, int]) -> dict[str, str]:
    return {"input_text": str(rates[0] / 10**6), "output_text": str(rates[1] / 10**6)}


def _chat(port: int, prompt: str, stream: bool, more: dict[str, str]) -> None:
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt}], **more}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {_KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def _records(data: Path) -> list[RequestRecord]:
    journal = Journal(data / "journal", max_bytes=1 << 30)
    try:
        entries = journal.read(journal.cursor, max_entries=1000, max_bytes=1 << 24)
        found = [decode_record(unpack_entry(entry)[1]) for entry in entries]
    finally:
        journal.close()
    return [record for record in found if isinstance(record, RequestRecord)]
