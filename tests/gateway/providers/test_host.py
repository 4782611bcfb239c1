"""The provider host and the gateway's side of it, over a real socket, with a library that plays a script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.providers.credentials import Credentials
from backends.providers.host import ProviderConnection, ProviderHost
from backends.providers.settings import ProviderHostSettings
from contracts.engine.wire import Abort, Attach, Call, Hello, Invoke, Invoked, ProviderTimeouts, frame, from_host
from contracts.errors import TargetMisconfigured, UpstreamRejected
from contracts.metering.usage import Usage
from tests.gateway.providers.host_process import KEY, KEY_REF, litellm_target
from tests.gateway.providers.scripted_library import STALL, ScriptedLibrary, chunk, fields_of, whole

Start = Callable[..., Awaitable[Any]]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]


class LocalHost:
    """A provider host in this process."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.library = ScriptedLibrary()
        self.path = folder / "p.sock"
        self.url = f"unix://{self.path}"
        credentials = Credentials((KEY_REF, "file:/run/keys/*"), {KEY_REF.removeprefix("env:"): KEY, "OTHER": "no"})
        self.host = ProviderHost(ProviderHostSettings(**settings), self.library, credentials)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: ProviderConnection(self.host), str(self.path))

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.host.abort_all()
        self.host.close()
        self.path.unlink(missing_ok=True)
        await asyncio.sleep(0.01)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalHost]:
    host = LocalHost(tmp_path, providers_max_requests=2)
    await host.start()
    yield host
    await host.stop()


@pytest.fixture
def start(start_gateway: Start, kit: Any, local: LocalHost, eventually: Any) -> Start:
    """Start a data plane with the local host; `is_spared` adds a scripted target behind the provider's."""

    async def start(*, is_spared: bool = False, waits: bool = True, url: str = "", **target: Any) -> Any:
        spare = [kit.scripted("spare", tokens=4)] if is_spared else []
        config = kit.configuration(("hosted", [litellm_target("any/model", url, **target), *spare]))
        running = await start_gateway(config, providers_url=local.url)
        if waits:
            await eventually(lambda: running.gateway.health()["provider_host"]["state"] == "ready")
        return running

    return start


def reason_in(caplog: pytest.LogCaptureFixture) -> str:
    """Return why the last target failed, as the log tells the operators."""
    reasons = [vars(one)["reason"] for one in caplog.records if one.getMessage() == "target failed"]
    return str(reasons[-1])


@pytest.mark.parametrize(("settings", "is_streamed"), [({}, True), ({"params": {"stream": False}}, False)])
async def test_a_whole_answer_under_a_bound_on_its_first_token_is_asked_for_by_a_stream(
    start_gateway: Start,
    kit: Any,
    local: LocalHost,
    eventually: Any,
    settings: dict[str, Any],
    is_streamed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = kit.configuration(("hosted", [litellm_target("any/model", "", settings=settings)]))
    config["pools"][0]["failures"] = {"first_token_seconds": 0.5, "whole_answer_seconds": 0.2}
    gateway = await start_gateway(config, providers_url=local.url)
    await eventually(lambda: gateway.gateway.health()["provider_host"]["state"] == "ready")
    if is_streamed:
        local.library.script = (chunk("Hi"), 0.6, chunk(" there"), chunk(finish="stop"))
        reply = await gateway.chat(model="hosted", messages=MESSAGES)
        assert (reply.status, reply.json["choices"][0]["message"]["content"]) == (200, "Hi there")
        assert reply.headers["content-type"] == "application/json"
    local.library.script = (STALL,)
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert reply.status == 504
    assert ("first_token_seconds" if is_streamed else "whole_answer_seconds") in reason_in(caplog)


async def test_the_host_gets_the_request_and_the_key_by_its_reference(start: Start, local: LocalHost) -> None:
    gateway = await start(settings={"params": {"api_version": "7"}, "timeouts": {"total": 9}}, url="http://x/")
    reply = await gateway.chat(model="hosted", messages=MESSAGES, temperature=0.5)
    assert (reply.status, reply.json["choices"][0]["message"]["content"]) == (200, "Hi")
    (order,) = local.library.orders
    assert fields_of(local.library) == {"model": "any/model", "messages": MESSAGES, "temperature": 0.5}
    assert (order.credentials, order.parameters, order.url) == ({"api_key": KEY}, {"api_version": "7"}, "http://x/")
    assert order.patience.total == 9
    assert KEY not in repr(order)
    (record,) = gateway.requests()
    assert (record.usage, record.count_method) == (Usage(input_text=3, output_text=2), "reported")


@pytest.mark.parametrize("reference", ["env:OTHER", "env:PATH", "file:/etc/passwd", "file:/run/keys/../../etc/passwd"])
async def test_a_reference_that_the_operator_does_not_allow_is_not_read(
    start: Start, local: LocalHost, reference: str, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await start(key=reference)
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert (reply.status, reply.error["code"]) == (502, "credential_refused")
    assert "TOLLKEEPER_PROVIDERS_KEYS" in reason_in(caplog)
    assert local.library.orders == []


async def test_a_host_that_is_away_leaves_the_answer_to_the_next_target(
    start: Start, local: LocalHost, eventually: Any
) -> None:
    await local.stop()
    gateway = await start(is_spared=True, waits=False)
    assert gateway.gateway.health()["status"] == "ready", "a provider host that is away keeps nobody else from serving"
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert reply.status == 200
    first, second = gateway.attempts()
    assert (first.error_code, second.replica, second.outcome) == ("engine_unavailable", "spare", "ok")
    await local.start()
    await eventually(lambda: gateway.gateway.health()["provider_host"]["state"] == "ready")
    replies = [await gateway.chat(model="hosted", messages=MESSAGES) for _ in range(2)]
    assert "Hi" in [reply.json["choices"][0]["message"]["content"] for reply in replies]


async def test_without_another_target_the_log_says_how_the_host_is_started(
    start: Start, local: LocalHost, caplog: pytest.LogCaptureFixture
) -> None:
    await local.stop()
    gateway = await start(waits=False)
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert (reply.status, reply.error["code"]) == (503, "engine_unavailable")
    assert "provider host" in reason_in(caplog) and "python -m backends.providers" in reason_in(caplog)


async def test_a_host_that_stops_takes_nothing_new(start: Start, local: LocalHost, eventually: Any) -> None:
    gateway = await start(is_spared=True)
    local.host.drain()
    await asyncio.sleep(0.05)
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert (reply.status, local.library.orders) == (200, [])


async def test_a_host_that_goes_away_breaks_the_answers_under_way(
    start: Start, local: LocalHost, eventually: Any
) -> None:
    gateway = await start()
    local.library.script = (chunk("Hel"), STALL)
    client = await gateway.connect()
    await client.send(gateway.request(model="hosted", messages=MESSAGES, stream=True))
    await client.reader.readuntil(b"Hel")
    await local.stop()
    body = await client.reader.readuntil(b"0\r\n\r\n")
    assert b"upstream_broken" in body and b"[DONE]" not in body
    await eventually(lambda: gateway.requests())
    assert gateway.requests()[0].usage.output_tokens == 1


async def test_more_requests_than_the_limit_are_left_to_the_next_target(
    start: Start, local: LocalHost, eventually: Any
) -> None:
    gateway = await start(is_spared=True)
    local.library.script = (0.3, whole())
    replies = await asyncio.gather(*(gateway.chat(model="hosted", messages=MESSAGES) for _ in range(3)))
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert len(local.library.orders) == 2, "the limit of this host is two at a time"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_leaves_ends_the_call(
    start: Start, local: LocalHost, eventually: Any, is_streamed: bool
) -> None:
    gateway = await start()
    local.library.script = (chunk("Hel"), STALL) if is_streamed else (STALL,)
    local.library.usage = b'{"prompt_tokens":30}'
    client = await gateway.connect()
    await client.send(gateway.request(model="hosted", messages=MESSAGES, stream=is_streamed))
    await eventually(lambda: local.library.orders)
    client.close()
    await eventually(lambda: local.library.ended)
    assert local.library.ended == ["CancelledError"]
    await eventually(lambda: gateway.requests())
    (record,) = gateway.requests()
    assert record.outcome == "cancelled"
    assert record.usage.input_tokens == 30, "what the provider had reported is known, also of a cut answer"
    assert local.host.requests == 0


@pytest.mark.parametrize(
    ("timeouts", "script", "told"),
    [
        ({"first_token": 0.05}, (STALL,), "begin within 0.05 s"),
        ({"between_tokens": 0.05}, (chunk("Hel"), STALL), "go on within 0.05 s"),
        ({"total": 0.05}, (chunk("Hel"), STALL), "finish within 0.05 s"),
    ],
)
async def test_each_timeout_ends_the_call_and_is_named(
    start: Start, local: LocalHost, timeouts: Any, script: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await start(settings={"timeouts": timeouts})
    local.library.script = script
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert b"upstream_timeout" in reply.body and told in reason_in(caplog)
    assert len(local.library.ended) == 1


async def test_a_fault_of_the_host_says_nothing_of_its_inside(
    start: Start, local: LocalHost, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = await start()
    local.library.script = (ValueError(f"prompt: Hello, key: {KEY}"),)
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert (reply.status, reply.error["code"]) == (502, "internal_error")
    assert KEY not in reply.error["message"] + caplog.text
    assert "Hello" not in caplog.text


async def test_a_refusal_is_passed_on_with_its_field(start: Start, local: LocalHost) -> None:
    gateway = await start(is_spared=True)
    local.library.script = (UpstreamRejected("too long", code="context_length_exceeded", param="messages"),)
    reply = await gateway.chat(model="hosted", messages=MESSAGES)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "context_length_exceeded", "messages")
    local.library.script = (TargetMisconfigured("no model", code="upstream_not_found"),)
    assert (await gateway.chat(model="hosted", messages=MESSAGES)).status == 200, "another target need not be set up so"


async def test_a_stream_without_an_end_is_broken(start: Start, local: LocalHost) -> None:
    gateway = await start()
    local.library.script = (chunk("Hel"),)
    reply = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert b"upstream_broken" in reply.events[-1]


async def test_an_operation_that_the_host_does_not_offer_is_left_to_the_next_target(
    start: Start, local: LocalHost
) -> None:
    gateway = await start(is_spared=True)
    assert (await gateway.complete(model="hosted")).status == 200
    alone = await start()
    reply = await alone.complete(model="hosted")
    assert (reply.status, reply.error["code"]) == (400, "unsupported_operation")
    assert "/completions" in reply.error["message"]


async def test_a_slow_client_holds_its_own_stream_back_and_no_other(
    start: Start, local: LocalHost, eventually: Any
) -> None:
    gateway = await start()
    local.library.script = (*([chunk("x" * 50_000)] * 400), chunk(finish="stop"))
    slow = await gateway.connect()
    await slow.send(gateway.request(model="hosted", messages=MESSAGES, stream=True))
    await slow.head()
    seen, still = -1, 0
    while still < 5:
        await asyncio.sleep(0.02)
        still = still + 1 if local.library.given == seen else 0
        seen = local.library.given
    assert seen < 400, "the stream was read whatever the client did"
    other = await gateway.chat(model="hosted", messages=MESSAGES, stream=True)
    assert other.events[-1] == b"data: [DONE]"
    assert sum([len(piece) async for piece in slow.pieces()]) > 400 * 50_000
    await eventually(lambda: len(gateway.requests()) == 2)


async def test_a_request_that_is_aborted_before_it_begins_has_an_end(local: LocalHost) -> None:
    reader, writer = await asyncio.open_unix_connection(str(local.path))
    patience = ProviderTimeouts(connect=1, first_byte=1, between=1, total=1)
    invoke = Invoke(request_id=b"x" * 16, operation="/chat/completions", body=b"{}", patience=patience)
    attach = Attach(version=1, gateway="g", wants_steps=False, wants_kv=False)
    writer.write(frame(attach) + frame(invoke) + frame(Abort(request_id=b"x" * 16)))
    for _ in range(2):
        size = int.from_bytes(await reader.readexactly(4), "little")
        message = from_host(await reader.readexactly(size))
    writer.close()
    assert isinstance(message, Invoked)
    assert (message.error_code, local.library.orders, local.host.requests) == ("aborted", [], 0)


async def test_the_wire_is_greeted_asked_and_refused_as_an_engine_host_s(local: LocalHost) -> None:
    async def talk(*messages: Any) -> list[Any]:
        reader, writer = await asyncio.open_unix_connection(str(local.path))
        writer.write(b"".join(map(frame, messages)))
        found = []
        for _ in range(len(messages)):
            size = int.from_bytes(await reader.readexactly(4), "little")
            found.append(from_host(await reader.readexactly(size)))
        writer.close()
        return found

    attach = Attach(version=1, gateway="g", wants_steps=False, wants_kv=False)
    hello, health = await talk(attach, Call(call_id=7, verb="health"))
    assert isinstance(hello, Hello)
    assert (hello.engine_kind, hello.operations, hello.models) == ("litellm", ["/chat/completions"], [])
    assert health.facts["healthy"] is True
    _, refused = await talk(attach, Call(call_id=8, verb="load", model="x"))
    assert not refused.ok and "engine hosts" in refused.error_message
    _, other_version = await talk(msgspec.structs.replace(attach, version=2), Call(call_id=9, verb="health"))
    assert other_version.error_code == "wire_version_mismatch"


def test_an_end_says_its_error_in_words_that_an_older_peer_can_read() -> None:
    end = Invoked(request_id=b"x" * 16, error_kind="upstream_error", error_code="new", error_message="m")
    assert from_host(frame(end)[4:]) == end
