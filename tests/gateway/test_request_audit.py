"""The audit of requests: an entry for each of a tenant that asks for it, none for others, hashes of what was said."""

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Any

import pytest

from backends.audit.keyed_hash import KeyedHash
from backends.audit.options import audit_root
from backends.audit.places import DirectoryPlace, segment_names
from backends.audit.signing import AuditSigner, own_keys
from backends.audit.verification import verify_chain
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

AUDITED = {"tenants": [{"id": "acme", "audits_requests": True}]}
CHAT: dict[str, Any] = {"model": "scripted-1", "messages": [{"role": "user", "content": "yes"}]}


def place_of(gateway: Any) -> Path:
    return audit_root(gateway.gateway._settings.data) / "gateway"


def entries(gateway: Any) -> list[dict[str, Any]]:
    directory = place_of(gateway)
    lines = [line for name in segment_names(directory) for line in (directory / name).read_bytes().splitlines()]
    return [entry for line in lines if (entry := json.loads(line[65:]))["kind"] == "request"]


def hashes_of(gateway: Any) -> KeyedHash:
    return KeyedHash.of(SecretFiles(gateway.gateway._settings.data / "secrets"))


async def test_nobody_is_audited_who_does_not_ask(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])))
    answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    assert answer.status == 200 and not place_of(gateway).exists()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_has_an_entry_with_hashes_of_what_was_said(start_gateway, kit, stream):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **AUDITED))
    body = json.dumps({**CHAT, "stream": stream, "user": "ada"}).encode()
    answer = await gateway.ask(gateway.request(body))
    [entry], [record] = entries(gateway), gateway.requests()
    hashes = hashes_of(gateway)
    assert entry["request"] == record.request_id.hex() and entry["at_ns"] == record.started_at_ns
    assert (entry["tenant"], entry["key"], entry["model"]) == ("acme", record.who.key_id, "scripted-1")
    assert entry["version"] == record.model_version and entry["address"] == "127.0.0.1"
    assert entry["prompt_hash"] == hashes.digest("acme", body)
    assert entry["response_hash"] == hashes.digest("acme", answer.body)
    assert entry["user_hash"] == hashes.digest("acme", b"ada")


async def test_a_hash_of_a_short_prompt_cannot_be_guessed_and_is_another_at_another_tenant(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **AUDITED))
    body = json.dumps(CHAT).encode()
    await gateway.ask(gateway.request(body))
    [entry] = entries(gateway)
    assert entry["prompt_hash"] != hashlib.sha256(body).hexdigest()
    assert entry["prompt_hash"] != hmac.digest(b"acme", body, "sha256").hex()
    assert entry["prompt_hash"] != hashes_of(gateway).digest("globex", body)
    raw = b"".join((place_of(gateway) / name).read_bytes() for name in segment_names(place_of(gateway)))
    assert b"yes" not in raw and b"scripted model" not in raw


async def test_refusals_are_audited_too(start_gateway, kit):
    limits = [
        {"id": "none", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 0}
    ]
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), limits=limits, **AUDITED))
    answer = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    [entry] = entries(gateway)
    assert answer.status == entry["status"] == 429 and entry["outcome"] == "rejected" and "response_hash" not in entry


async def test_plain_chats_that_would_go_the_short_way_are_audited(start_gateway, kit, upstream):
    upstream.always(upstream.whole({"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}))
    target = kit.http_target(upstream.url)
    gateway = await start_gateway(kit.configuration(("scripted-1", [target]), **AUDITED))
    for _ in range(3):
        assert (await gateway.ask(gateway.request(json.dumps(CHAT).encode()))).status == 200
    assert [entry["outcome"] for entry in entries(gateway)] == ["ok"] * 3


async def test_while_the_log_cannot_be_written_the_tenant_is_refused(start_gateway, kit, monkeypatch):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **AUDITED))
    ask = json.dumps(CHAT).encode()
    assert (await gateway.ask(gateway.request(ask))).status == 200
    audit = gateway.gateway.recorder.audit
    now = [audit._chain._now_ns()]
    monkeypatch.setattr(audit._chain, "_now_ns", lambda: now[0])
    full = os.open("/dev/full", os.O_WRONLY)
    sound, audit._chain._descriptor = audit._chain._descriptor, full
    assert (await gateway.ask(gateway.request(ask))).status == 200  # it was in progress: served, and missed
    refused = await gateway.ask(gateway.request(ask))
    assert (refused.status, refused.error["code"], audit.missed) == (503, "audit_unavailable", 2)
    assert "audit" in gateway.gateway.health()["degraded"]
    audit._chain._descriptor = sound
    os.close(full)
    now[0] += 2_000_000_000
    assert (await gateway.ask(gateway.request(ask))).status == 200
    assert len(entries(gateway)) == 2 and audit.missed == 0


async def test_a_log_that_cannot_be_opened_is_tried_once_a_second_and_tells_what_it_missed(
    start_gateway, kit, monkeypatch
):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **AUDITED))
    audit, ask, tries = gateway.gateway.recorder.audit, json.dumps(CHAT).encode(), []

    def refused_key(secrets):
        tries.append(secrets)
        raise ConfigurationError("the secret cannot be read")

    monkeypatch.setattr(audit, "_now", lambda: 100.0)
    monkeypatch.setattr(AuditSigner, "of", refused_key)
    for _ in range(3):
        refused = await gateway.ask(gateway.request(ask))
        assert (refused.status, refused.error["code"]) == (503, "audit_unavailable")
    assert len(tries) == 1 and audit.missed == 3 and "audit" in gateway.gateway.health()["degraded"]
    monkeypatch.undo()
    audit._now = lambda: 101.0
    assert (await gateway.ask(gateway.request(ask))).status == 200
    directory = place_of(gateway)
    lines = b"".join((directory / name).read_bytes() for name in segment_names(directory))
    assert b'"kind":"gap"' in lines and b'"missed":3' in lines and audit.missed == 0


async def test_what_is_written_verifies_once_the_gateway_has_stopped(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), **AUDITED))
    for _ in range(3):
        await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    gateway.gateway.recorder.audit.close()
    keys = own_keys(SecretFiles(gateway.gateway._settings.data / "secrets"))
    report = verify_chain(DirectoryPlace(place_of(gateway)), keys)
    assert report.fault is None and report.last == report.signed_upto == 5


@pytest.mark.parametrize("loss", ["missing", "another"])
async def test_a_chain_does_not_go_on_under_another_signing_key(start_gateway, kit, tmp_path, loss):
    config = kit.configuration(("scripted-1", [kit.scripted()]), **AUDITED)
    gateway = await start_gateway(config, data=tmp_path / "data")
    assert (await gateway.ask(gateway.request(json.dumps(CHAT).encode()))).status == 200
    await gateway.close()
    file = tmp_path / "data" / "secrets" / "audit_signing_key"
    key = file.read_text()
    file.unlink()
    if loss == "another":
        file.write_text("A" * 43 + "\n")
    gateway = await start_gateway(config, data=tmp_path / "data")
    refused = await gateway.ask(gateway.request(json.dumps(CHAT).encode()))
    assert (refused.status, refused.error["code"]) == (503, "audit_unavailable")
    await gateway.close()
    file.write_text(key)
    gateway = await start_gateway(config, data=tmp_path / "data")
    assert (await gateway.ask(gateway.request(json.dumps(CHAT).encode()))).status == 200
    directory = place_of(gateway)
    await gateway.close()
    report = verify_chain(DirectoryPlace(directory), own_keys(SecretFiles(tmp_path / "data" / "secrets")))
    assert report.fault is None, report.fault
