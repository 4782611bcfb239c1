"""A configuration file that changes while requests are under way: what is good is used at once, what is bad is not."""

import asyncio
import os
import signal
import sys

import pytest
import yaml

from contracts.errors import ConfigurationError
from gateway.config.directory import RefusedSnapshot
from gateway.config.file import FileSource

OTHER = "tk-" + "B" * 43


@pytest.fixture
def write(tmp_path):
    """Put another configuration in the place of the first gateway's, as editors and config maps do."""

    def replace(content):
        draft = tmp_path / "draft.yaml"
        draft.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        os.replace(draft, tmp_path / "gateway0.yaml")

    return replace


def served(kit, upstream, **more):
    return kit.configuration(("mock", [kit.http_target(upstream.url)]), **more)


@pytest.fixture
def quick_looks(monkeypatch):
    """Look at the file more often than a gateway does."""
    monkeypatch.setattr("gateway.config.directory._POLL_SECONDS", 0.02)


def slow_stream(upstream, pieces=15):
    return (
        upstream.stream_head(),
        *[step for _ in range(pieces) for step in (upstream.piece(upstream.chunk("tok ")), 0.03)],
        upstream.piece(upstream.chunk(finish="stop")) + upstream.piece(upstream.event(b"[DONE]")) + upstream.END,
    )


async def begin(gateway):
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await client.head()
    return client


async def test_a_stream_goes_on_and_its_connection_is_kept_where_its_target_stays_the_same(
    start_gateway, kit, upstream, write, eventually, quick_looks
):
    upstream.then(*slow_stream(upstream))
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(served(kit, upstream))
    before = gateway.target("mock", "u1")
    streaming = await begin(gateway)
    write({**served(kit, upstream), "models": [{"name": "mock", "pool": "mock"}, {"name": "twin", "pool": "mock"}]})
    await eventually(lambda: gateway.gateway.directory.snapshot.revision == 1, 3.0)
    assert (await gateway.chat(model="twin")).status == 200, "what is new is served while the old stream goes on"
    body = b"".join([piece async for piece in streaming.pieces()])
    assert body.count(b"tok ") == 15 and body.endswith(b"data: [DONE]\n\n")
    assert gateway.target("mock", "u1") is before
    assert (await gateway.chat(model="twin")).status == 200
    assert upstream.accepted == 2, "one for the stream, one beside it, and none after that"


async def test_a_stream_of_a_target_that_is_removed_finishes_and_nothing_new_goes_there(
    start_gateway, kit, new_upstream, write, eventually, quick_looks
):
    old, new = await new_upstream(), await new_upstream()
    old.always(*slow_stream(old))
    new.always(new.whole(new.completion()))
    gateway = await start_gateway(served(kit, old))
    streaming = await begin(gateway)
    write(served(kit, new))
    await eventually(lambda: gateway.gateway.directory.snapshot.revision == 1, 3.0)
    assert (await gateway.chat(model="mock")).status == 200
    body = b"".join([piece async for piece in streaming.pieces()])
    assert body.count(b"tok ") == 15 and body.endswith(b"data: [DONE]\n\n")
    assert (len(old.requests), len(new.requests)) == (1, 1)
    await eventually(lambda: not old.open)
    assert [record.outcome for record in gateway.requests()] == ["ok", "ok"]


FAULTS = {
    "no YAML": "keys: [",
    "no keys": "keys: []\n",
    "a target that cannot be used": None,
    "nothing": "",
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_file_that_is_wrong_changes_nothing_and_shows_as_degraded_until_it_is_mended(
    start_gateway, kit, upstream, write, eventually, quick_looks, caplog, name
):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(served(kit, upstream))
    before = gateway.target("mock", "u1")
    bad = {"name": "bad", "kind": "openai_http", "url": "http://127.0.0.1:1", "key": "env:NOT_SET_ANYWHERE"}
    good = kit.http_target("http://127.0.0.1:1/v1", "good")
    write(FAULTS[name] if FAULTS[name] is not None else kit.configuration(("mock", [good, bad])))
    await eventually(lambda: gateway.gateway.health()["degraded"] == ["configuration"], 3.0)
    ready = gateway.gateway.health()
    assert ready["status"] == "ready" and ready["control_plane"] == "reachable"
    words = {
        "no YAML": "gateway0.yaml, line",
        "no keys": "keys: required",
        "a target that cannot be used": "NOT_SET",
    }
    assert words.get(name, "gateway0.yaml") in ready["configuration"]
    assert (await gateway.chat(model="mock")).status == 200 and gateway.target("mock", "u1") is before
    await asyncio.sleep(0.1)  # a few more looks
    assert sum("configuration refused" in record.message for record in caplog.records) == 1
    write(served(kit, upstream))
    await eventually(lambda: gateway.gateway.health()["degraded"] == [], 3.0)
    assert gateway.gateway.health()["configuration"] == "current" and gateway.target("mock", "u1") is before


async def test_a_key_that_is_taken_out_is_refused_and_a_new_one_served_within_a_second(
    start_gateway, kit, upstream, write, eventually
):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(served(kit, upstream))
    theirs = {"Authorization": f"Bearer {OTHER}"}
    assert (await gateway.chat(model="mock", headers=theirs)).status == 401
    write(served(kit, upstream, keys=[{"key": OTHER, "tenant": "beta"}]))
    await eventually(lambda: gateway.gateway.directory.snapshot.revision == 1, 1.5)
    assert (await gateway.chat(model="mock", headers=theirs)).status == 200
    assert (await gateway.chat(model="mock")).status == 401


async def test_a_new_limit_holds_from_the_reload_on(start_gateway, kit, upstream, write, eventually, quick_looks):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(served(kit, upstream))
    assert [(await gateway.chat(model="mock")).status for _ in range(3)] == [200] * 3
    limit = {"tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 2}
    write(served(kit, upstream, limits=[limit]))
    await eventually(lambda: gateway.gateway.directory.snapshot.revision == 1, 3.0)
    assert [(await gateway.chat(model="mock")).status for _ in range(3)] == [200, 200, 429]


def test_a_file_is_read_only_once_it_has_stopped_changing(tmp_path, kit):
    path = tmp_path / "gateway.yaml"
    text = yaml.safe_dump(kit.configuration(("scripted-1", [kit.scripted()])))
    path.write_text(text)
    source = FileSource(path, b"pepper")
    source.load()
    assert source.poll(0) is None and source.poll(0) is None
    for half in (text[:40], text[:80], text + "# more\n"):
        path.write_text(half)
        assert source.poll(0) is None, "it may be half written"
    newer = source.poll(0)
    assert newer is not None and newer.revision == 1
    assert source.poll(1) is None


def test_a_wrong_file_is_read_once_for_each_change_and_one_that_is_gone_is_wrong(tmp_path, kit):
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(kit.configuration(("scripted-1", [kit.scripted()]))))
    source = FileSource(path, b"pepper")
    path.write_text("keys: [")
    assert source.poll(0) is None
    with pytest.raises(RefusedSnapshot, match="line 1"):
        source.poll(0)
    assert source.poll(0) is None
    path.unlink()
    assert source.poll(0) is None
    with pytest.raises(ConfigurationError, match="cannot be read"):
        source.poll(0)


def test_a_file_that_is_asked_for_is_read_though_it_has_not_changed(tmp_path, kit):
    key = tmp_path / "app.key"
    key.write_text(OTHER)
    path = tmp_path / "gateway.yaml"
    pools = ("scripted-1", [kit.scripted()])
    path.write_text(yaml.safe_dump(kit.configuration(pools, keys=[{"key": f"file:{key}", "tenant": "acme"}])))
    source = FileSource(path, b"pepper")
    first = source.load()
    key.write_text(kit.KEY)
    source.ask()
    second = source.poll(0)
    assert second is not None and set(second.keys) != set(first.keys)


def test_a_look_at_the_file_tells_whether_a_poll_could_find_anything(tmp_path, kit):
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(kit.configuration(("scripted-1", [kit.scripted()]))))
    source = FileSource(path, b"pepper")
    seen = [source.may_have_changed()]
    for change in (lambda: path.write_text(path.read_text() + "# more\n"), source.ask):
        change()
        while source.may_have_changed():
            seen.append(source.poll(0) is not None)
    assert seen == [False, False, True, True]
    aside = tmp_path / "aside.yaml"
    for _ in range(2):  # away for one look, and back: no second absence is taken for one that has lasted
        path.rename(aside)
        assert source.may_have_changed() and source.poll(0) is None
        aside.rename(path)
        assert source.may_have_changed() and source.poll(0) is None
        assert not source.may_have_changed()


async def test_sighup_reads_again_at_once_and_ends_nothing(tmp_path, kit, free_ports):
    [port] = free_ports(1)
    key = tmp_path / "app.key"
    key.write_text(OTHER)
    config = kit.configuration(
        ("scripted-1", [kit.scripted(tokens=40, gap_ms=15)]),
        keys=[{"key": f"file:{key}", "tenant": "acme", "id": "key_1"}],
    )
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(config))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    environment |= {
        "TOLLKEEPER_DATA": str(tmp_path / "data"),
        "TOLLKEEPER_GATEWAY_CONFIG": str(tmp_path / "gateway.yaml"),
        "TOLLKEEPER_GATEWAY_PORT": str(port),
        "TOLLKEEPER_DRAIN_NOTICE_SECONDS": "0",
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert child.stderr is not None
    try:
        await _until(child.stderr, b"gateway ready")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(kit.request(stream=True, headers={"Authorization": f"Bearer {OTHER}"}))
        await reader.readuntil(b"\r\n\r\n")
        key.write_text(kit.KEY)
        child.send_signal(signal.SIGHUP)
        await _until(child.stderr, b"configuration reloaded")
        second, second_writer = await asyncio.open_connection("127.0.0.1", port)
        second_writer.write(kit.request(max_tokens=1))
        assert b" 200 " in await second.readuntil(b"\r\n")
        assert b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        second_writer.close()
        child.terminate()
        assert await asyncio.wait_for(child.wait(), 10) == 0
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def _until(stream: asyncio.StreamReader, words: bytes) -> None:
    while words not in await asyncio.wait_for(stream.readline(), 20):
        pass
