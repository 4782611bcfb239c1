"""Two gateways over one control database: a slow candidate is rolled back by what both see, for both."""

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

from backends.secrets.secret_files import SecretFiles
from contracts.serving.rollouts import RolloutSpec, unit_of
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.conftest import PostgresServer as PostgresServer

DEMO = "scripted-1"


@pytest.fixture
async def gateways(owner, control_database_url, tmp_path):
    """Two data planes that follow the control plane's database."""
    running = []
    for name in ("one", "two"):
        shutil.copytree(tmp_path / "secrets", tmp_path / name / "secrets")
        settings = GatewaySettings(
            data=tmp_path / name,
            database_url=control_database_url,
            gateway_port=0,
            gateway_name=name,
            collector_url="",
            drain_seconds=0.2,
        )
        gateway = Gateway(settings)
        await gateway.start()
        running.append(gateway)
    yield running
    for gateway in running:
        await gateway.stop()


def conversations(spec: RolloutSpec, of_each_arm: int) -> list[str]:
    """Name as many conversations of each arm: chance alone may give an arm too few to be judged."""
    drawn: dict[bool, list[str]] = {True: [], False: []}
    for number in range(1000):
        name = f"c{number}"
        drawn[spec.draws("demo", unit_of(name, "", ""))].append(name)
    return drawn[True][:of_each_arm] + drawn[False][:of_each_arm]


async def test_a_slow_candidate_is_rolled_back_by_what_both_gateways_see(owner, gateways, tmp_path: Path):
    def prepare() -> None:
        owner.post("/v1/pools", json={"id": "slow"})
        settings = {"script": {"tokens": 4, "first_ms": 150}}
        owner.post("/v1/pools/slow/targets", json={"id": "one", "kind": "scripted", "settings": settings})
        owner.post("/v1/models", json={"id": "slow", "pool": "slow"})
        owner.post("/v1/routes", json={"id": "assistant", "rules": {"choose": [{"model": DEMO}]}})
        rules = {
            "steps": [{"percent": 50, "min_minutes": 0, "min_requests": 1_000_000}],
            "guards": {"window_seconds": 60, "min_requests": 16},
        }
        about = {"id": "try", "route": "assistant", "incumbent": DEMO, "candidate": "slow", "rules": rules}
        made = owner.post("/v1/rollouts", json=about)
        assert made.status_code == 201, made.text

    await asyncio.to_thread(prepare)
    async with asyncio.timeout(20):
        while not all(gateway.directory.snapshot.rollouts for gateway in gateways):
            await asyncio.sleep(0.05)
    names = conversations(gateways[0].directory.snapshot.rollouts["assistant"], of_each_arm=6)
    key = SecretFiles(tmp_path / "secrets").get("demo_key")
    arms: dict[str, set[str]] = {}
    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as client:

        async def ask(gateway: Gateway, conversation: str) -> str:
            body = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}], "stream": True}
            url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
            reply = await client.post(url, json=body, headers={"x-tollkeeper-conversation-id": conversation})
            assert reply.status_code == 200, reply.text
            return str(reply.headers["x-tollkeeper-model"])

        for _ in range(2):  # of the candidate's, each gateway sees too few to judge alone
            for gateway in gateways:
                for name, model in zip(names, await asyncio.gather(*(ask(gateway, one) for one in names)), strict=True):
                    arms.setdefault(name, set()).add(model)
        assert {len(models) for models in arms.values()} == {1}, "both gateways lead a conversation to the same arm"
        assert {model for models in arms.values() for model in models} == {DEMO, "slow"}

        def state() -> str:
            return str(owner.get("/v1/rollouts/try").json()["state"])

        async with asyncio.timeout(20):
            while await asyncio.to_thread(state) != "rolled_back":
                await asyncio.sleep(0.1)
            while any(gateway.directory.snapshot.rollouts for gateway in gateways):
                await asyncio.sleep(0.05)
        for gateway in gateways:
            assert {await ask(gateway, name) for name in arms} == {DEMO}
    [alert] = owner.get("/v1/alerts").json()["data"]
    assert alert["kind"] == "rollout" and "ttft p95 (ms) of the candidate" in alert["summary"]
    [entry] = owner.get("/v1/audit?action=rollout.roll_back").json()["data"]
    assert entry["actor"] in ("gateway one", "gateway two")
