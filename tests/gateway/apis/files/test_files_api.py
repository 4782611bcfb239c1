"""OpenAI's Files API with OpenAI's SDK: what is uploaded comes back, to its owner and to nobody else."""

import asyncio
import json
import sqlite3
import time

import openai
import pytest

from backends.objects.database import ObjectsDatabase
from contracts.objects.files import PIECE_BYTES

OTHER, PROJECT, WIDE = "tk-" + "B" * 43, "tk-" + "C" * 43, "tk-" + "D" * 43
RED, BLUE = "tk-" + "E" * 43, "tk-" + "F" * 43
KEYS = [
    {"key": "tk-" + "A" * 43, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"},
    {"key": OTHER, "tenant": "globex", "id": "key_2"},
    {"key": PROJECT, "tenant": "acme", "team": "core", "project": "gemini", "id": "key_3"},
    {"key": WIDE, "tenant": "acme", "id": "key_4"},
    {"key": RED, "tenant": "acme", "team": "core", "id": "key_5"},
    {"key": BLUE, "tenant": "acme", "team": "blue", "id": "key_6"},
]


@pytest.fixture
async def gateway(start_gateway, kit):
    return await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), keys=KEYS))


def upload(client, content=b"{}\n", name="in.jsonl", **more):
    return client.files.create(file=(name, content), purpose="batch", **more)


async def error_of(call) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refusal:
        await call
    return refusal.value


async def test_a_file_comes_back_as_it_was_uploaded(gateway):
    content = bytes(range(256)) * 4096 * 3 + b"end"  # over three pieces
    client = gateway.sdk()
    file = await upload(client, content, expires_after={"anchor": "created_at", "seconds": 7200})
    assert (file.object, file.purpose, file.filename, file.bytes) == ("file", "batch", "in.jsonl", len(content))
    assert file.status == "processed" and file.expires_at == file.created_at + 7200
    assert abs(file.created_at - time.time()) < 5
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == content
    gone = await client.files.delete(file.id)
    assert (gone.id, gone.deleted, gone.object) == (file.id, True, "file")
    for call in (client.files.retrieve(file.id), client.files.content(file.id), client.files.delete(file.id)):
        assert (await error_of(call)).code == "file_not_found"


@pytest.mark.parametrize("size", [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1])
async def test_a_file_of_about_one_piece_is_whole(gateway, size):
    client = gateway.sdk()
    file = await upload(client, b"x" * size)
    assert (await client.files.content(file.id)).content == b"x" * size


async def test_the_blocking_sdk_works_as_well(gateway):
    def use() -> None:
        with openai.OpenAI(base_url=gateway.base_url, api_key=KEYS[0]["key"], max_retries=0) as client:
            file = upload(client)
            assert client.files.content(file.id).text == "{}\n"
            assert [found.id for found in client.files.list()] == [file.id]
            assert client.files.delete(file.id).deleted

    await asyncio.to_thread(use)


async def test_a_list_is_turned_page_by_page_in_either_order(gateway):
    client = gateway.sdk()
    made = [(await upload(client, name=f"{number}.jsonl")).filename for number in range(5)]
    assert [file.filename async for file in client.files.list(limit=2)] == made[::-1]
    assert [file.filename async for file in client.files.list(limit=2, order="asc")] == made
    page = await client.files.list(limit=5)
    assert len(page.data) == 5 and page.has_more is False
    assert [file async for file in client.files.list(purpose="batch_output")] == []


@pytest.mark.parametrize(
    ("query", "param"),
    [({"limit": 0}, "limit"), ({"limit": 10_001}, "limit"), ({"order": "up"}, "order"), ({"colour": "red"}, "colour")],
)
async def test_a_list_s_parameters_are_refused_by_name(gateway, query, param):
    assert (await error_of(gateway.sdk().files.list(extra_query=query))).param == param


async def test_a_file_is_its_project_s_and_its_tenant_s_alone(gateway):
    mine = await upload(gateway.sdk())
    for key in (OTHER, PROJECT):
        client = gateway.sdk(key)
        for call in (client.files.retrieve(mine.id), client.files.content(mine.id), client.files.delete(mine.id)):
            refusal = await error_of(call)
            assert (refusal.status_code, refusal.code) == (404, "file_not_found")
        assert [file async for file in client.files.list()] == []
    wide = gateway.sdk(WIDE)
    assert [file.id async for file in wide.files.list()] == [mine.id], "a key of no project sees all of its tenant's"
    tenants = await upload(wide)
    assert (await error_of(gateway.sdk().files.retrieve(tenants.id))).status_code == 404


async def test_a_key_of_a_team_sees_nothing_of_another_team(gateway):
    mine, of_team, of_tenant = [await upload(gateway.sdk(key)) for key in (KEYS[0]["key"], RED, WIDE)]
    assert {file.id async for file in gateway.sdk(RED).files.list()} == {mine.id, of_team.id}
    assert {file.id async for file in gateway.sdk(WIDE).files.list()} == {mine.id, of_team.id, of_tenant.id}
    blue = gateway.sdk(BLUE)
    assert [file async for file in blue.files.list()] == []
    for hidden in (mine, of_team, of_tenant):
        for call in (blue.files.retrieve(hidden.id), blue.files.content(hidden.id), blue.files.delete(hidden.id)):
            assert (await error_of(call)).status_code == 404
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
    body = {"model": "scripted-1", "messages": [{"role": "user", "content": "Hello"}]}
    wanted = await upload(gateway.sdk(RED), json.dumps({**line, "body": body}).encode() + b"\n")
    batch = await gateway.sdk(RED).batches.create(
        input_file_id=wanted.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert [found async for found in blue.batches.list()] == []
    for call in (blue.batches.retrieve(batch.id), blue.batches.cancel(batch.id)):
        assert (await error_of(call)).status_code == 404
    while (found := await gateway.sdk(RED).batches.retrieve(batch.id)).status not in ("completed", "failed"):
        await asyncio.sleep(0.05)
    assert found.status == "completed", "the team's key pays for its batch"


async def test_a_key_without_the_endpoint_is_refused(start_gateway, kit):
    keys = [{**KEYS[0], "endpoints": ["chat.completions", "batches"]}]
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), keys=keys))
    refusal = await error_of(upload(gateway.sdk()))
    assert refusal.status_code == 403 and "may not use files" in refusal.message


async def test_a_file_that_has_expired_is_gone_and_its_room_is_given_back(gateway, eventually):
    client = gateway.sdk()
    file = await upload(client)
    database = gateway.gateway.kept._url.removeprefix("sqlite:///")
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE files SET expires_unix = ?", (int(time.time()),))
    assert (await error_of(client.files.retrieve(file.id))).status_code == 404
    runner = gateway.gateway.batches._runner
    runner._sweep_at_ns = 0
    runner.wake()

    def is_empty() -> bool:
        with sqlite3.connect(database) as connection:
            rows = connection.execute("SELECT (SELECT count(*) FROM files) + (SELECT count(*) FROM file_pieces)")
            return bool(rows.fetchone() == (0,))

    await eventually(is_empty)


@pytest.mark.parametrize(("size", "fits"), [(1024 * 1024 - 2, True), (1024 * 1024 - 1, True), (1024 * 1024, False)])
async def test_a_tenant_s_bytes_are_bounded_below_at_and_above(start_gateway, kit, size, fits):
    config = kit.configuration(("scripted-1", [kit.scripted()]), keys=KEYS)
    gateway = await start_gateway(config, files_max_bytes=1024 * 1024)
    await upload(gateway.sdk(), b"x")
    if fits:
        await upload(gateway.sdk(PROJECT), b"x" * size)
    else:
        refusal = await error_of(upload(gateway.sdk(PROJECT), b"x" * size))
        assert (refusal.status_code, refusal.code) == (400, "file_storage_full")
        assert "keeps 1 bytes in files, and at most 1048576 are kept" in refusal.message
    await upload(gateway.sdk(OTHER), b"x" * 1024), "another tenant has room of its own"


async def test_a_tenant_s_files_are_counted(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), files_max_count=2)
    client = gateway.sdk()
    first = await upload(client)
    await upload(client)
    refusal = await error_of(upload(client))
    assert refusal.code == "too_many_files" and "keeps 2 files, and at most 2 are kept" in refusal.message
    await client.files.delete(first.id)
    await upload(client)


async def test_a_file_beyond_the_largest_body_names_the_setting(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), max_body_bytes=4096)
    answer = await gateway.ask(gateway.request(b"x" * 4097, path="/v1/files"))
    assert answer.status == 413 and "TOLLKEEPER_MAX_BODY_BYTES" in answer.error["message"]


async def test_a_file_that_cannot_be_read_to_its_end_breaks_off(gateway, monkeypatch):
    client = gateway.sdk()
    file = await upload(client, b"x" * (PIECE_BYTES + 1))
    with sqlite3.connect(gateway.gateway.kept._url.removeprefix("sqlite:///")) as connection:
        connection.execute("DELETE FROM file_pieces WHERE number = 1")
    with pytest.raises(openai.APIConnectionError):
        await client.files.content(file.id)


async def test_a_database_that_is_away_is_said_and_comes_back(gateway, monkeypatch):
    client = gateway.sdk()
    await upload(client)
    database = gateway.gateway.kept.database()
    with monkeypatch.context() as patch:
        patch.setattr(database, "_engine", ObjectsDatabase("sqlite:////nowhere/objects.db")._engine)
        refusal = await error_of(upload(client))
        assert (refusal.status_code, refusal.code) == (503, "objects_unavailable")
    await upload(client)
    assert len([file async for file in client.files.list()]) == 2, "what was half-written is not seen"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/files"), ("POST", "/v1/files/file-1"), ("DELETE", "/v1/files")]
)
async def test_other_methods_are_refused(gateway, method, path):
    answer = await gateway.ask(gateway.request(b"{}", path=path).replace(b"POST", method.encode(), 1))
    assert answer.status == 405 and answer.headers["allow"]
