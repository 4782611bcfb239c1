"""Two torch engine hosts behind the whole gateway: prefixes stay warm, load stays even, a cut answer goes on.

Twenty tenants ask with one long system prompt each, of the same text: no tenant's blocks are another's. The gateway
runs in this process, the hosts are processes of their own with the built-in model on a CPU.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from bench.report import Report
from contracts.recording.records import RequestRecord, decode_record
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from gateway.records.journal import unpack_entry

WARM_MUST: Final = 0.95
LOAD_MUST: Final = 1.5
_TENANTS: Final = 20
_ROUNDS: Final = 4
_AT_ONCE: Final = 4
_PREFIX_TOKENS: Final = 2_000
_MODEL: Final = "builtin"
_READY_SECONDS: Final = 120.0
_ANSWER_TOKENS: Final = 160  # of the answer that is interrupted
_KV_BYTES: Final = 1 << 30  # all twenty prompts, at one host


def host_rows(report: Report) -> None:
    """Add the rows of two hosts; if they do not start here, rows that say so."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(_measure(report, Path(folder)))
        except (RuntimeError, OSError, httpx.HTTPError) as error:
            for metric in ("two_hosts_warm", "two_hosts_load", "killed_mid_stream_same_text"):
                report.add_absent(metric, "", f"two engine hosts did not serve here: {error}")


async def _measure(report: Report, data: Path) -> None:
    hosts = [_Host(data / f"host-{number}") for number in (1, 2)]
    gateway: Gateway | None = None
    try:
        gateway = await _started(data, hosts)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}/v1", timeout=120) as client:
            prefix = await _prefix(client, gateway)
            await _tenants(report, gateway, client, prefix)
            await _interrupted(report, gateway, client, hosts)
    finally:
        if gateway is not None:
            await gateway.stop()
        for host in hosts:
            host.stop()


class _Host:
    """An engine host's process."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True)
        self.url = f"unix://{data}/run/engine-default.sock"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "backends.engine"],
            env={
                **os.environ,
                "TOLLKEEPER_DATA": str(data),
                "TOLLKEEPER_ENGINE_EMBEDDER": "false",
                "TOLLKEEPER_ENGINE_DEVICE": "cpu",
                "TOLLKEEPER_ENGINE_THREADS": "1",
                "TOLLKEEPER_ENGINE_KV_BYTES": str(_KV_BYTES),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def _key(tenant: int) -> str:
    return f"tk-{tenant:02d}" + "H" * 41


async def _started(data: Path, hosts: Sequence[_Host]) -> Gateway:
    targets = [{"name": f"host-{place}", "kind": "engine", "url": host.url} for place, host in enumerate(hosts, 1)]
    configuration = {
        "keys": [{"key": _key(tenant), "tenant": f"tenant-{tenant}"} for tenant in range(_TENANTS)],
        "pools": [{"name": "pool", "policy": "cost", "targets": targets}],
        "models": [{"name": _MODEL, "pool": "pool"}],
    }
    file = data / "gateway.yaml"
    file.write_text(yaml.safe_dump(configuration))
    gateway = Gateway(
        GatewaySettings(data=data, gateway_config=file, gateway_port=0, metrics=False, routing_sample_share=1.0)
    )
    await gateway.start()
    deadline = asyncio.get_running_loop().time() + _READY_SECONDS
    while not _are_ready(gateway):
        if asyncio.get_running_loop().time() > deadline:
            raise RuntimeError(f"the engine hosts did not start in {_READY_SECONDS:g} s")
        await asyncio.sleep(0.2)
    return gateway


def _are_ready(gateway: Gateway) -> bool:
    status: Any = gateway.health()["engines"]
    return all(one["state"] == "ready" for one in status.values())


async def _ask(client: httpx.AsyncClient, tenant: int, messages: list[dict[str, str]], tokens: int = 4) -> str:
    body: dict[str, Any] = {"model": _MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0}
    answer = await client.post("/chat/completions", json=body, headers={"Authorization": f"Bearer {_key(tenant)}"})
    answer.raise_for_status()
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def _chat(prefix: str, question: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": prefix}, {"role": "user", "content": question}]


async def _prefix(client: httpx.AsyncClient, gateway: Gateway) -> str:
    """Return a text of about 2,000 tokens, by what a part of it comes to."""
    part = " ".join(f"Rule {number}: every part of every book is added up, and the sums agree." for number in range(20))
    await _ask(client, 0, _chat(part, "Why?"))
    tokens = _requests(gateway)[-1].usage.input_tokens or 1
    # It begins otherwise than the part, which one tenant has cached now.
    return " ".join(["These are the rules of the house.", *[part] * -(-_PREFIX_TOKENS // tokens)])


async def _tenants(report: Report, gateway: Gateway, client: httpx.AsyncClient, prefix: str) -> None:
    before = len(_requests(gateway))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(tenant: int, turn: int) -> None:
        async with gate:
            await _ask(client, tenant, _chat(prefix, f"What does rule {turn} say to tenant {tenant}?"))

    for turn in range(1 + _ROUNDS):
        await asyncio.gather(*(one(tenant, turn) for tenant in range(_TENANTS)))
    records = _requests(gateway)[before:]
    warm = records[_TENANTS:]
    cached = sum(record.usage.cache_read_text or 0 for record in warm)
    total = sum(record.usage.input_tokens or 0 for record in warm)
    report.add("two_hosts_warm", cached / total, "share of tokens", must=WARM_MUST, n=len(warm))
    cold = sum(record.usage.cache_read_text or 0 for record in records[:_TENANTS])
    report.add("two_hosts_shared_between_tenants", cold, "tokens", must=0.0, better="lower", n=_TENANTS)
    loads = Counter(record.replica for record in records)
    most = max(loads.values()) / (len(records) / 2)
    report.add("two_hosts_load", most, "busiest/mean", must=LOAD_MUST, better="lower", n=len(records))


async def _interrupted(report: Report, gateway: Gateway, client: httpx.AsyncClient, hosts: Sequence[_Host]) -> None:
    """Ask the same twice, greedily; the second time the host that answers is killed in the middle."""
    body: dict[str, Any] = {
        "model": _MODEL,
        "messages": _chat("You tell long stories.", "Tell me one."),
        "max_tokens": _ANSWER_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    whole, _ = await _streamed(client, body, None)
    cut, was_killed = await _streamed(client, body, (gateway, hosts))
    same = float(was_killed and whole == cut and len(whole) > 0)
    report.add("killed_mid_stream_same_text", same, "yes/no", must=1.0, n=len(whole))


async def _streamed(
    client: httpx.AsyncClient, body: dict[str, Any], killing: tuple[Gateway, Sequence[_Host]] | None
) -> tuple[str, bool]:
    text, events, was_killed = "", 0, False
    headers = {"Authorization": f"Bearer {_key(0)}"}
    async with client.stream("POST", "/chat/completions", json=body, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = httpx.Response(200, content=line.removeprefix("data: ")).json()
            if "error" in event:
                raise RuntimeError(f"the stream failed: {event['error']}")
            text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            events += 1
            if killing is not None and events == _ANSWER_TOKENS // 4:
                gateway, hosts = killing
                was_killed = True
                hosts[_busy(gateway)].process.kill()
    return text, was_killed


def _busy(gateway: Gateway) -> int:
    """Return which host is answering."""
    status: Any = gateway.router.status()
    replicas = status["pools"]["pool"]["replicas"]
    return next(place for place, one in enumerate(replicas.values()) if one["running"])


def _requests(gateway: Gateway) -> list[RequestRecord]:
    journal = gateway.journal
    entries = journal.read(journal.cursor, max_entries=100_000, max_bytes=1 << 30)
    records = [decode_record(unpack_entry(entry)[1]) for entry in entries]
    return [record for record in records if isinstance(record, RequestRecord)]
