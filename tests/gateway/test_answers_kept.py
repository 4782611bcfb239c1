"""Answers that are kept for their reader: kept where the client leaves meanwhile, and good where keeping fails."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from gateway.apis.responses.reply import ResponseReply

KEY = "tk-" + "A" * 43


def response_request(gateway, **fields: Any) -> bytes:
    body = {"model": "scripted-1", "input": "one two three", **fields}
    data: bytes = gateway.request(json.dumps(body).encode(), path="/v1/responses")
    return data


def reading(response_id: str) -> bytes:
    return f"GET /v1/responses/{response_id} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_an_answer_whose_client_leaves_while_it_is_kept_is_kept_all_the_same(
    gateway, monkeypatch, eventually, caplog, how
):
    keeper = gateway.gateway._responses
    keep, may_go_on, asked, kept = keeper.keep, asyncio.Event(), [], []

    async def slowly(request_id: UUID, *more: Any) -> None:
        asked.append(request_id)
        await may_go_on.wait()
        await keep(request_id, *more)
        kept.append(request_id)

    monkeypatch.setattr(keeper, "keep", slowly)
    client = await gateway.connect()
    await client.send(response_request(gateway))
    await eventually(lambda: asked)
    getattr(client, how)()
    await eventually(lambda: gateway.gateway.health()["connections"] == 0)
    may_go_on.set()
    await eventually(lambda: kept)
    [record] = gateway.requests()
    assert record.outcome == "ok" and record.usage.output_tokens == 27
    answer = await gateway.ask(reading(f"resp_{asked[0].hex}"))
    assert answer.status == 200 and answer.json["status"] == "completed"
    assert "could not be kept" not in caplog.text and gateway.gateway.admission.in_flight == 0


async def test_an_answer_that_cannot_be_kept_is_answered_and_recorded(gateway, monkeypatch, caplog):
    async def broken(reply: ResponseReply) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(ResponseReply, "keep", broken)
    answer = await gateway.ask(response_request(gateway))
    assert answer.status == 200 and answer.json["status"] == "completed"
    assert len(gateway.requests()) == 1 and "an answer could not be cached" in caplog.text
