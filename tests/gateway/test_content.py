"""What was said: kept for tenants that want it, redacted before it is written, and for nobody else."""

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.recording.records import ContentRecord
from contracts.recording.redaction import Redactor
from gateway.records.content import ContentKeeper, _Said, read_redactor
from tests.gateway.exposition_parser import Page

MAIL = "ada@example.org"
KEPT = {"tenants": [{"id": "acme", "keeps_content": True}]}
CHAT: dict[str, Any] = {"model": "scripted-1", "messages": [{"role": "user", "content": f"I am {MAIL}"}]}


def content(gateway: Any) -> list[ContentRecord]:
    return [record for record in gateway.records() if isinstance(record, ContentRecord)]


def on_disk(gateway: Any) -> bytes:
    return b"".join(file.read_bytes() for file in gateway.gateway.journal._log.directory.iterdir() if file.is_file())


async def test_nothing_that_was_said_is_kept_unless_the_tenant_wants_it(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])))
    answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    assert answer.status == 200 and len(gateway.requests()) == 1
    assert content(gateway) == [] and b"Hello! I am" not in on_disk(gateway) and b"ada" not in on_disk(gateway)


async def test_half_a_surrogate_pair_is_kept_as_a_mark_and_two_halves_as_what_they_are(start_gateway, kit, eventually):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])))
    keeper = ContentKeeper(gateway.gateway.journal, Redactor(), 1000)
    sent = b"".join(b'data: {"delta": "%b"}\n\n' % half for half in (b"\\ud83d", b"\\ude00"))
    keeper._keep([keeper._packed(_Said(bytes(16), 1, "acme", "m", b'{"input": "a\\ud800b"}', sent))])
    [said] = content(gateway)
    assert (said.prompt, said.completion, keeper.dropped) == ('{"input": "a\ufffdb"}', "\U0001f600", 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_was_said_is_redacted_before_it_is_written(start_gateway, kit, eventually, stream):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **KEPT))
    answer = await gateway.ask(gateway.request(json.dumps({**CHAT, "stream": stream}).encode()))
    assert answer.status == 200
    await eventually(lambda: content(gateway))
    [said], [record] = content(gateway), gateway.requests()
    assert (said.request_id, said.tenant, said.model) == (record.request_id, "acme", "scripted-1")
    assert said.encoding == "redacted"
    assert json.loads(said.prompt)["messages"] == [{"role": "user", "content": "I am [email]"}]
    assert "Hello! I am the scripted model" in said.completion
    assert MAIL.encode() not in on_disk(gateway)


async def test_what_is_refused_is_not_kept(start_gateway, kit):
    limits = [
        {"id": "none", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 0}
    ]
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), limits=limits, **KEPT))
    answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    assert answer.status == 429
    await gateway.gateway.recorder.content.close()
    assert content(gateway) == []


async def test_plain_chats_of_such_a_tenant_are_seen_and_kept(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole({"choices": [{"index": 0, "message": {"role": "assistant", "content": MAIL}}]}))
    target = kit.http_target(upstream.url)
    gateway = await start_gateway(kit.configuration(("scripted-1", [target]), **KEPT))
    for _ in range(2):
        answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
        assert answer.status == 200 and answer.json["choices"][0]["message"]["content"] == MAIL
    await eventually(lambda: len(content(gateway)) == 2)
    page = Page((await gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n")).body)
    assert [page.value(f"tollkeeper_content_{name}_total") for name in ("kept", "dropped")] == [2, 0]
    assert all("[email]" in said.completion and MAIL not in said.completion for said in content(gateway))


@pytest.mark.interpreted
async def test_what_cannot_be_redacted_is_counted_and_not_written(start_gateway, kit, eventually, monkeypatch):
    def broken(redactor: Redactor, text: str) -> str:
        raise ValueError("of no pattern")

    monkeypatch.setattr(Redactor, "redact", broken)
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **KEPT))
    answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    assert answer.status == 200
    keeper: ContentKeeper = gateway.gateway.recorder.content
    await eventually(lambda: keeper.dropped == 1)
    page = Page((await gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n")).body)
    assert page.value("tollkeeper_content_dropped_total") == 1
    assert content(gateway) == [] and MAIL.encode() not in on_disk(gateway)


def test_a_file_of_patterns_is_read_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "patterns").write_text("staff = EMP-[0-9]{4}\n")
    assert read_redactor(tmp_path / "patterns").redact("EMP-1234") == "[staff]"


@pytest.mark.interpreted
async def test_what_waits_for_redaction_is_bounded_in_bytes(start_gateway, kit, eventually, monkeypatch):
    monkeypatch.setattr("gateway.records.content._MOST_WAITING_BYTES", 10)
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **KEPT))
    answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    keeper: ContentKeeper = gateway.gateway.recorder.content
    assert (answer.status, keeper.dropped, keeper._waiting_bytes) == (200, 1, 0)
    assert content(gateway) == []


KIB = 1 << 10


async def test_what_ends_together_is_redacted_in_portions(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])))
    keeper = ContentKeeper(gateway.gateway.journal, Redactor(), 1 << 20)
    for sizes, portions in (
        ([KIB] * 127, [127]),
        ([KIB] * 128, [128]),
        ([KIB] * 129, [128, 1]),
        ([10] * 300, [128, 128, 44]),
        ([64 * KIB, 64 * KIB, 1], [2, 1]),
        ([64 * KIB, 64 * KIB + 1, 1], [1, 2]),
        ([KIB, 500 * KIB, KIB, KIB], [1, 1, 2]),  # a large one goes to a thread, and takes no other with it
    ):
        keeper._waiting.extend(_Said(bytes(16), 1, "acme", "m", bytes(size), b"") for size in sizes)
        found = []
        while keeper._waiting:
            some, size = keeper._next()
            assert size == sum(one.size for one in some)
            found.append(len(some))
        assert found == portions


async def test_many_exchanges_that_end_at_once_are_all_kept(start_gateway, kit, eventually):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **KEPT))
    chat = {**CHAT, "messages": [{"role": "user", "content": f"I am {MAIL}. " + "x = 1\n" * 400}]}
    body = json.dumps(chat).encode()
    clients = [await gateway.connect() for _ in range(60)]
    for client in clients:
        await client.send(gateway.request(body) * 2)
    for client in clients:
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
    keeper: ContentKeeper = gateway.gateway.recorder.content
    await eventually(lambda: keeper.kept + keeper.dropped == 120)
    assert keeper.dropped == 0 and len(content(gateway)) == 120
    assert MAIL.encode() not in on_disk(gateway)
