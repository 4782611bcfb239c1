"""Clients of the openai SDK that are refused and wait as they are told: each is admitted at its first retry."""

import asyncio

import openai
import pytest

from gateway.request.clock import Clock

CLIENTS = 20
pytestmark = pytest.mark.usefixtures("patient_clock")  # clients wait, and windows pass, in one time
A_SECOND = 7  # requests; so the last of the clients wait for the third window


def key_of(number: int) -> str:
    return "tk-" + "ABCDEFGHIJKLMNOPQRST"[number] * 43


@pytest.fixture
async def start(start_gateway, kit):
    """Start a gateway with 20 keys of one tenant under a limit."""

    async def start(**limit):
        config = kit.configuration(
            ("scripted-1", [kit.scripted(tokens=4)]), limits=[{"tenant": "acme", "level": "tenant"} | limit]
        )
        config["keys"] = [{"key": key_of(number), "tenant": "acme", "id": f"k{number}"} for number in range(CLIENTS)]
        return await start_gateway(config)

    return start


class Client:
    """An SDK client whose tries are counted."""

    def __init__(self, base_url: str, key: str) -> None:
        self.statuses: list[int] = []
        self.waits_ms: list[int] = []
        http = openai.DefaultAsyncHttpxClient(verify=False, event_hooks={"response": [self.count]})
        self.sdk = openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=5, http_client=http)

    async def count(self, response) -> None:
        self.statuses.append(response.status_code)
        if response.status_code == 429:
            self.waits_ms.append(int(response.headers["retry-after-ms"]))

    async def ask(self) -> None:
        await self.sdk.chat.completions.create(
            model="scripted-1", messages=[{"role": "user", "content": "one two three"}]
        )


async def crowd(gateway, keys):
    """Let all clients ask at once, after the limit was used up by others; return them."""
    clients = [Client(gateway.base_url, key) for key in keys]
    while (await gateway.chat(headers={"Authorization": f"Bearer {key_of(0)}"})).status == 200:
        pass
    try:
        await asyncio.gather(*(client.ask() for client in clients))
    finally:
        for client in clients:
            await client.sdk.close()
    return clients


def assert_one_retry_at_most(clients):
    """On a busy machine some may come only when there is room again; no more of them than have room at once."""
    statuses = [client.statuses for client in clients]
    assert all(found in ([200], [429, 200]) for found in statuses), statuses
    assert statuses.count([429, 200]) >= CLIENTS - A_SECOND


@pytest.mark.parametrize("keys", [1, CLIENTS])
async def test_every_client_that_waits_as_told_is_admitted_at_its_first_retry(start, keys):
    gateway = await start(metric="requests", amount=A_SECOND, window="second")
    clients = await crowd(gateway, [key_of(number % keys) for number in range(CLIENTS)])
    assert_one_retry_at_most(clients)
    waits_ms = sorted(client.waits_ms[0] for client in clients if client.waits_ms)
    assert waits_ms[-1] < 5_000, "told to wait for longer than the windows before it take"
    assert waits_ms[-1] - waits_ms[0] > 1_000, "all were told the same moment, when not all fit"


async def test_tokens_are_kept_for_those_who_wait_as_well(start):
    gateway = await start(metric="input_tokens", amount=A_SECOND * 3, window="second")
    clients = await crowd(gateway, [key_of(number) for number in range(CLIENTS)])
    assert_one_retry_at_most(clients)


async def test_one_who_comes_early_takes_nobodys_place(start, monkeypatch):
    now_ns = 1_800_000_000 * 10**9
    clock = Clock(wall_ns=lambda: now_ns, monotonic_ns=lambda: now_ns)
    monkeypatch.setattr("gateway.process.app.Clock", lambda: clock)
    gateway = await start(metric="requests", amount=1, window="second")

    async def ask(number: int):
        return await gateway.chat(headers={"Authorization": f"Bearer {key_of(number)}", "x-stainless-retry-count": "1"})

    assert (await ask(2)).status == 200
    told = await ask(0)
    assert told.status == 429
    wait_ns = int(told.headers["retry-after-ms"]) * 10**6
    began_ns = now_ns
    for tenth in range(11):
        now_ns = began_ns + wait_ns * tenth // 10
        assert (await ask(1)).status == 429, f"after {tenth} tenths of the wait"
    assert (await ask(0)).status == 200
