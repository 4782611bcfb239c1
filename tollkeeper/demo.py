"""Example traffic for a running installation: three tenants chat with it, most of them streaming, some leaving early.

It is a client like any other: of the control plane, for tenants and keys, and of the gateway with those keys.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import httpx

from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient

SEED: Final = 7  # the same conversations every time, so that two demos can be compared
STREAMED_SHARE: Final = 0.7
LEAVING_SHARE: Final = 0.03  # of the streams: the reader closes the page
REQUEST_TIMEOUT_SECONDS: Final = 60.0
SCRIPTED_PREFIX: Final = "scripted-"

KEY_LIFETIME: Final = timedelta(hours=1)
_ORGANISATIONS: Final = (  # tenant, its team, its project
    ("acme", "search", "ranking"),
    ("globex", "support", "replies"),
    ("initech", "finance", "reports"),
)

_SUBJECTS: Final = ("the quarterly report", "this contract", "our returns policy", "the outage last night", "a recipe")
_ASKS: Final = ("Summarise", "Translate into French", "List the risks in", "Explain to a new colleague", "Shorten")
_CONTEXT: Final = "The paragraph below is from a long document, and every sentence of it matters to the answer. "


@dataclass(slots=True)
class DemoSummary:
    """What the traffic came to, as the clients saw it. Tokens are those that the gateway's `usage` reported."""

    seconds: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)  # by tenant
    statuses: Counter[int] = field(default_factory=Counter)  # HTTP; 0 where no answer came
    streamed: int = 0
    left_early: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def sent(self) -> int:
        """Count the requests, whatever became of them."""
        return self.requests.total()

    @property
    def failed(self) -> int:
        """Count the requests that got no answer or another status than 200."""
        return self.sent - self.statuses[200]


@dataclass(frozen=True, slots=True)
class _Chat:
    """One request of the demo, decided before it is sent."""

    tenant: str
    body: dict[str, object]
    is_streamed: bool
    leaves_after: int | None  # events read before the client goes; `None`: it stays


def create_demo_keys(control: ControlClient, now: datetime) -> dict[str, str]:
    """Make a key for each of three example tenants, and what is missing of them; give the secrets by tenant.

    The keys expire after an hour, so that demos leave nothing behind that opens a door. `now` is in UTC.
    Raises what the control plane says where it refuses.
    """
    expires_at = (now + KEY_LIFETIME).isoformat()
    secrets: dict[str, str] = {}
    for tenant, team, project in _ORGANISATIONS:
        teams = f"/v1/tenants/{tenant}/teams"
        _create_missing(control, "/v1/tenants", tenant)
        _create_missing(control, teams, team)
        _create_missing(control, f"{teams}/{team}/projects", project)
        wanted = {"name": "demo traffic", "team": team, "project": project, "expires_at": expires_at}
        secrets[tenant] = str(control.post(f"/v1/tenants/{tenant}/keys", wanted)["secret"])
    return secrets


def _create_missing(control: ControlClient, path: str, slug: str) -> None:
    if slug not in {row["id"] for row in control.get_all(path)}:
        control.post(path, {"id": slug, "name": slug.capitalize()})


def run_demo_traffic(base_url: str, keys: Mapping[str, str], seconds: float, rate: float) -> DemoSummary:
    """Send chats for some seconds at `rate` requests per second in the mean, and wait for the last answer.

    `base_url` is the data plane's, without /v1; `keys` are API keys by tenant, the first tenant being the busiest.
    Raises ConfigurationError where the gateway cannot be reached or a key sees no model. Blocks; do not call it
    from a coroutine, there `drive` is the one to await.
    """
    return asyncio.run(drive(base_url, keys, seconds, rate))


async def drive(base_url: str, keys: Mapping[str, str], seconds: float, rate: float) -> DemoSummary:
    """Do what `run_demo_traffic` says, in the running event loop. Arrivals are a Poisson process."""
    if not keys or rate <= 0:
        raise ConfigurationError(f"demo traffic needs a key and a rate above 0, not {len(keys)} keys at {rate}/s")
    source = random.Random(SEED)
    summary = DemoSummary()
    begin = time.monotonic()
    async with httpx.AsyncClient(base_url=base_url, timeout=REQUEST_TIMEOUT_SECONDS, trust_env=False) as client:
        models = {tenant: await _models(client, tenant, key) for tenant, key in keys.items()}
        async with asyncio.TaskGroup() as chats:
            due = time.monotonic()
            end = due + seconds
            while (due := due + source.expovariate(rate)) < end:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                chat = _next_chat(source, models)
                chats.create_task(_send(client, keys[chat.tenant], chat, summary))
    summary.seconds = time.monotonic() - begin
    return summary


async def _models(client: httpx.AsyncClient, tenant: str, key: str) -> list[str]:
    try:
        reply = await client.get("/v1/models", headers=_authorization(key))
    except httpx.TransportError as error:
        raise ConfigurationError(f"no gateway answers at {client.base_url}; start one with: tollkeeper up") from error
    if reply.status_code != 200:
        raise ConfigurationError(f"the gateway refused the key of tenant {tenant!r} (status {reply.status_code})")
    models = [str(model["id"]) for model in reply.json()["data"]]
    if not models:
        raise ConfigurationError(f"tenant {tenant!r} sees no model; add one to the gateway first")
    return models


def _next_chat(source: random.Random, models: Mapping[str, list[str]]) -> _Chat:
    tenants = list(models)
    # A tenant has half the traffic of the one before it: dashboards shall show unlike shares.
    tenant = source.choices(tenants, weights=[0.5**place for place in range(len(tenants))])[0]
    is_streamed = source.random() < STREAMED_SHARE
    leaves = is_streamed and source.random() < LEAVING_SHARE
    model = source.choice(models[tenant])
    question = f"{source.choice(_ASKS)} {source.choice(_SUBJECTS)}. " + _CONTEXT * int(source.paretovariate(1.2))
    question = question[:8_000] + (_script(source) if model.startswith(SCRIPTED_PREFIX) else "")
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": min(int(16 * source.paretovariate(1.1)), 256),
        "user": f"{tenant}-user-{source.randrange(20)}",
    }
    if is_streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return _Chat(tenant, body, is_streamed, source.randrange(1, 6) if leaves else None)


def _script(source: random.Random) -> str:
    """Ask the scripted model, which answers at once by itself, to take about as long as a small model does."""
    first_ms, gap_ms = source.lognormvariate(4.8, 0.4), source.lognormvariate(2.5, 0.3)  # medians 120 and 12
    tokens, cached = min(int(20 * source.paretovariate(1.3)), 400), source.choice((0, 0, 16))
    return f" [[script first_ms={first_ms:.0f} gap_ms={gap_ms:.0f} tokens={tokens} cached={cached}]]"


async def _send(client: httpx.AsyncClient, key: str, chat: _Chat, summary: DemoSummary) -> None:
    summary.requests[chat.tenant] += 1
    summary.streamed += chat.is_streamed
    status = 0
    try:
        async with client.stream("POST", "/v1/chat/completions", json=chat.body, headers=_authorization(key)) as reply:
            status = reply.status_code
            if status == 200:
                await (_read_stream if chat.is_streamed else _read_answer)(reply, chat, summary)
    except httpx.TransportError:
        status = 0  # an answer that breaks off is none
    summary.statuses[status] += 1


async def _read_answer(reply: httpx.Response, chat: _Chat, summary: DemoSummary) -> None:
    _count_usage(await reply.aread(), summary)


async def _read_stream(reply: httpx.Response, chat: _Chat, summary: DemoSummary) -> None:
    events = 0
    async for line in reply.aiter_lines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        events += 1
        _count_usage(line.removeprefix("data: "), summary)
        if events == chat.leaves_after:
            summary.left_early += 1
            return


def _count_usage(body: str | bytes, summary: DemoSummary) -> None:
    answer = json.loads(body)
    if "error" in answer:  # a stream says so in an event, its status has long been 200
        raise httpx.RemoteProtocolError("the stream ended with an error event")
    usage = answer.get("usage") or {}
    summary.input_tokens += usage.get("prompt_tokens", 0)
    summary.output_tokens += usage.get("completion_tokens", 0)


def _authorization(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
