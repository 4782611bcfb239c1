"""A target changed through the control plane: new requests go to the new address, those in progress end at the old."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from gateway.control.settings import ControlSettings
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.conftest import Running
from tests.gateway.control.conftest import client_of


@pytest.mark.parametrize("is_stream", [True, False])
async def test_new_requests_follow_a_change_and_those_under_way_end_well(
    migrated_sqlite: Path, tmp_path: Path, new_upstream: Any, eventually: Any, is_stream: bool
) -> None:
    old, new = await new_upstream(), await new_upstream()
    if is_stream:
        old.then(
            old.stream_head(),
            old.piece(old.chunk("one ")),
            1.5,
            old.piece(old.chunk("two")),
            old.piece(old.chunk(finish="stop")) + old.piece(old.event(b"[DONE]")) + old.END,
        )
    else:
        old.then(1.5, old.whole(old.completion("late")))
    new.always(new.whole(new.completion("new")))
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    url = f"sqlite:///{tmp_path / 'control.db'}"
    with client_of(ControlSettings(data=tmp_path, database_url=url)) as control:
        control.post("/v1/tenants", json={"id": "acme", "name": "Acme"})
        key = control.post("/v1/tenants/acme/keys", json={"name": "k"}).json()["secret"]
        control.post("/v1/pools", json={"id": "p"})
        control.post("/v1/pools/p/targets", json={"id": "t", "kind": "openai_http", "url": old.url})
        control.post("/v1/models", json={"id": "m", "pool": "p"})
        process = Gateway(
            GatewaySettings(data=tmp_path, database_url=url, gateway_port=0, collector_url="", drain_seconds=0.2)
        )
        await process.start()
        gateway = Running(process)
        try:
            bearer = {"Authorization": f"Bearer {key}"}
            under_way = asyncio.create_task(gateway.chat(headers=bearer, model="m", stream=is_stream))
            await eventually(lambda: len(old.requests) == 1)
            changed = await asyncio.to_thread(control.patch, "/v1/pools/p/targets/t", json={"url": new.url})
            assert changed.status_code == 200, changed.text
            target = process.directory
            await eventually(lambda: target.snapshot.pools["p"].targets[0].url == new.url, 1.5)
            answer = await gateway.chat(headers=bearer, model="m")
            assert answer.json["choices"][0]["message"]["content"] == "new"
            first = await under_way
            assert first.status == 200
            assert b"two" in first.body and b"[DONE]" in first.body if is_stream else b"late" in first.body
            assert (len(old.requests), len(new.requests)) == (1, 1)
            await eventually(lambda: len(gateway.requests()) == 2)
            assert {record.outcome for record in gateway.requests()} == {"ok"}
        finally:
            await gateway.close()
