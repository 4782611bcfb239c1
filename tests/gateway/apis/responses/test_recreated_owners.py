"""A team or project that is created with the id of a deleted one sees nothing that the earlier one kept."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.control.settings import ControlSettings
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.conftest import Running
from tests.gateway.control.conftest import client_of

LINE = b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[]}}\n'


async def kept_of(client: openai.AsyncOpenAI, response_id: str, file_id: str, batch_id: str) -> list[bool]:
    """Return what of these a key may read."""

    async def is_there(asked: Any) -> bool:
        try:
            await asked
        except openai.NotFoundError:
            return False
        return True

    continued = client.responses.create(model="m", input="what did I say?", previous_response_id=response_id)
    listed = [file.id async for file in client.files.list()] + [batch.id async for batch in client.batches.list()]
    return [
        await is_there(client.responses.retrieve(response_id)),
        await is_there(continued),
        await is_there(client.files.retrieve(file_id)),
        await is_there(client.batches.retrieve(batch_id)),
        {file_id, batch_id} <= set(listed),
        bool({file_id, batch_id} & set(listed)),
    ]


@pytest.mark.parametrize("deleted", ["teams/core", "teams/core/projects/apollo"])
async def test_what_a_deleted_team_or_project_kept_is_not_its_successors(
    upstream: Any, migrated_sqlite: Path, tmp_path: Path, eventually: Any, deleted: str
) -> None:
    upstream.always(upstream.whole(upstream.completion("Hi there")))
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    url = f"sqlite:///{tmp_path / 'control.db'}"
    with client_of(ControlSettings(data=tmp_path, database_url=url)) as control:

        def create(path: str, **fields: Any) -> Any:
            made = control.post(f"/v1/{path}", json=fields)
            assert made.status_code < 300, made.text
            return made.json()

        def create_owner() -> None:
            if control.get("/v1/tenants/acme/teams/core").status_code == 404:
                create("tenants/acme/teams", id="core", name="Core")
            create("tenants/acme/teams/core/projects", id="apollo", name="Apollo")

        create("tenants", id="acme", name="Acme")
        create_owner()
        whose = {"team": "core", "project": "apollo"}
        key, whole = create("tenants/acme/keys", name="k", **whose), create("tenants/acme/keys", name="w")
        create("pools", id="p")
        create("pools/p/targets", id="t", kind="openai_http", url=upstream.url)
        create("models", id="m", pool="p")
        process = Gateway(
            GatewaySettings(data=tmp_path, database_url=url, gateway_port=0, collector_url="", drain_seconds=0.2)
        )
        await process.start()
        gateway, directory = Running(process), process.directory
        try:
            first = gateway.sdk(key["secret"])
            response = (await first.responses.create(model="m", input="the secret plan")).id
            file = (await first.files.create(file=("in.jsonl", LINE), purpose="batch")).id
            batch = (
                await first.batches.create(input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h")
            ).id
            assert await kept_of(first, response, file, batch) == [True] * 6
            await asyncio.sleep(1.0)  # files and batches know whole seconds
            for path in (f"keys/{key['id']}", deleted):
                gone = await asyncio.to_thread(control.delete, f"/v1/tenants/acme/{path}")
                assert gone.status_code == 200, gone.text
            create_owner()
            new = create("tenants/acme/keys", name="k2", **whose)
            await eventually(lambda: new["id"] in {one.identity.key_id for one in directory.snapshot.keys.values()}, 15)
            second = gateway.sdk(new["secret"])
            assert await kept_of(second, response, file, batch) == [False] * 6
            own = (await second.responses.create(model="m", input="another plan")).id
            assert (await second.responses.retrieve(own)).id == own
            assert (await kept_of(gateway.sdk(whole["secret"]), response, file, batch)) == [True] * 6
        finally:
            await gateway.close()
