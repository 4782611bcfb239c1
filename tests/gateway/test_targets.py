"""Targets follow the snapshot: built once, rebuilt when their specification changes, left out when it is wrong."""

import asyncio
from typing import Any

import pytest

from contracts.errors import ConfigurationError, UpstreamError
from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import PoolSpec, Snapshot, TargetSpec
from gateway.config.targets import TargetRegistry, TargetReplaced, resolve_key


def spec(name: str = "t", **fields) -> TargetSpec:
    return TargetSpec(name, "p", fields.pop("kind", "scripted"), **fields)


def snapshot_of(*targets: TargetSpec) -> Snapshot:
    return Snapshot(1, {}, {}, {"p": PoolSpec("p", targets)}, PriceBook())


async def test_a_target_is_kept_while_its_specification_stays_the_same():
    registry = TargetRegistry()
    registry.sync(snapshot_of(spec("a"), spec("b")))
    first = registry.get(spec("a"))
    registry.sync(snapshot_of(spec("a"), spec("c")))
    assert registry.get(spec("a")) is first
    with pytest.raises(UpstreamError) as gone:
        registry.get(spec("b"))
    assert gone.value.error_code == "target_misconfigured" and gone.value.retryable
    registry.sync(snapshot_of(spec("a", weight=2)))
    assert registry.get(spec("a")) is not first
    await registry.close()


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown kind": ({"kind": "telepathy"}, "known kinds: engine, litellm, openai_http, scripted"),
    "no url": ({"kind": "openai_http"}, "needs a url"),
    "no http": ({"kind": "openai_http", "url": "ftp://a/v1"}, "must look like http"),
    "a port out of range": ({"kind": "openai_http", "url": "http://a:99999/v1"}, "not a URL"),
    "a space": ({"kind": "openai_http", "url": "http://a/v1 x"}, "spaces"),
    "a missing credential": ({"kind": "openai_http", "url": "http://a", "key_ref": "env:NOT_SET"}, "NOT_SET"),
    "a hosted model without its provider": ({"kind": "litellm", "model": "claude"}, "anthropic/claude"),
    "no provider host to reach": ({"kind": "litellm", "model": "a/b"}, "knows no provider host"),
    "a script's unknown field": ({"settings": {"script": {"speed": 1}}}, "speed"),
    "a script's wrong value": ({"settings": {"script": {"tokens": -1}}}, "tokens"),
    "a timeout of 0": (
        {"kind": "openai_http", "url": "http://a", "settings": {"timeouts": {"connect": 0}}},
        "'connect' must be > 0",
    ),
    "a timeout of the wrong type": (
        {"kind": "openai_http", "url": "http://a", "settings": {"timeouts": {"total": "long"}}},
        "total",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_target_stops_a_strict_start_and_is_otherwise_left_out(name):
    fields, words = BROKEN[name]
    registry = TargetRegistry()
    with pytest.raises(ConfigurationError, match=words):
        registry.sync(snapshot_of(spec("bad", **fields)), strict=True)
    registry = TargetRegistry()
    registry.sync(snapshot_of(spec("bad", **fields), spec("good")))
    assert registry.get(spec("good"))
    assert words in registry.broken["p/bad"]
    with pytest.raises(UpstreamError, match=words):
        registry.get(spec("bad", **fields))
    registry.sync(snapshot_of(spec("bad"), spec("good")))
    assert registry.broken == {} and registry.get(spec("bad"))
    await registry.close()


@pytest.mark.parametrize("removed", [True, False])
async def test_a_request_under_way_outlives_a_change_of_its_target(start_gateway, kit, upstream, eventually, removed):
    head = upstream.stream_head() + upstream.piece(upstream.chunk("one "))
    upstream.always(head, 0.15, upstream.piece(upstream.chunk("two", finish="stop")) + upstream.END)
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await client.head()
    pieces = client.pieces()
    await anext(pieces)
    changed = TargetSpec("u1", "mock", "openai_http", url=upstream.url, weight=9)
    targets = (TargetSpec("other", "mock", "scripted"),) if removed else (changed,)
    pools = {"mock": PoolSpec("mock", targets)}
    gateway.gateway.targets.sync(Snapshot(2, {}, {}, pools, PriceBook()))
    rest = b"".join([piece async for piece in pieces])
    assert b"two" in rest and rest.endswith(b"data: [DONE]\n\n")
    await eventually(lambda: not upstream.open)  # and only then is its connection given up
    await asyncio.sleep(0)


def test_a_credential_is_read_from_the_environment_or_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_KEY", "sk-1")
    path = tmp_path / "key"
    path.write_text("sk-2\n")
    assert resolve_key("env:SOME_KEY") == "sk-1"
    assert resolve_key(f"file:{path}") == "sk-2"


@pytest.mark.parametrize("reference", ["", "sk-plain", "env:", "file:", "vault:x", "env:NOT_SET_ANYWHERE", "file:/no"])
def test_a_reference_that_leads_nowhere_is_refused_without_repeating_a_credential(reference):
    with pytest.raises(ConfigurationError) as refused:
        resolve_key(reference)
    assert "sk-plain" not in refused.value.message


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_credential_file_without_a_credential_is_refused(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="credential file"):
        resolve_key(f"file:{path}")


@pytest.mark.parametrize(
    "moved", [{"region": "us"}, {"provider": "other"}, {"region": ""}], ids=["region", "provider", "no region"]
)
async def test_who_was_to_be_served_in_one_place_is_not_sent_to_where_a_reload_has_put_the_target(moved):
    registry = TargetRegistry()
    old = spec("a", region="eu", provider="one")
    registry.sync(snapshot_of(old))
    new = spec("a", **{"region": "eu", "provider": "one", **moved})
    registry.sync(snapshot_of(new))
    with pytest.raises(TargetReplaced, match="region or provider has been changed"):
        registry.get(old)
    assert registry.find(old) is None and registry.get(new) is registry.find(new)
    await registry.close()


async def test_a_target_that_a_reload_has_changed_where_it_is_serves_who_waited_for_it():
    registry = TargetRegistry()
    old, new = spec("a", region="eu"), spec("a", region="eu", weight=2, provider="scripted")
    registry.sync(snapshot_of(old))
    registry.sync(snapshot_of(new))
    assert registry.get(old) is registry.get(new)
    await registry.close()
