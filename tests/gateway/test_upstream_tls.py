"""Model servers behind TLS, and what the gateway proves itself with: certificates, headers, keys in files."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from backends.network.tls import TlsFiles, server_context, server_tls
from contracts.errors import ConfigurationError
from tests.certificates import Authority


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
async def secure(new_upstream, authority):
    """A model server behind TLS that answers every request."""
    issued = authority.issue("server")
    upstream = await new_upstream(server_tls(TlsFiles(issued.certificate, issued.key)))
    upstream.always(upstream.whole(upstream.completion()))
    return upstream


def target(kit, upstream, **settings):
    one = kit.http_target(upstream.url)
    return {**one, "settings": {**one["settings"], **settings}}


async def asked(start_gateway, kit, upstream, **settings):
    gateway = await start_gateway(kit.configuration(("mock", [target(kit, upstream, **settings)])))
    return gateway, await gateway.chat(model="mock")


async def test_a_server_whose_authority_is_named_is_reached_and_its_connection_kept(
    start_gateway, kit, secure, authority
):
    gateway, answer = await asked(start_gateway, kit, secure, tls={"ca_file": str(authority.path)})
    assert answer.status == 200, answer.body
    assert (await gateway.chat(model="mock")).status == 200
    assert secure.accepted == 1
    secure.always(secure.streamed(secure.chunk("Hi"), secure.chunk(finish="stop"), secure.event(b"[DONE]")))
    assert (await gateway.chat(model="mock", stream=True)).events[-1] == b"data: [DONE]"


@pytest.mark.parametrize("case", ["unknown authority", "another name", "expired"])
async def test_a_server_that_does_not_prove_who_it_is_is_sent_nothing(
    start_gateway, kit, new_upstream, authority, tmp_path, case
):
    names = ("example.org",) if case == "another name" else ("127.0.0.1",)
    issued = authority.issue("server", *names, days=-1 if case == "expired" else 1)
    upstream = await new_upstream(server_tls(TlsFiles(issued.certificate, issued.key)))
    tls = {} if case == "unknown authority" else {"ca_file": str(authority.path)}
    gateway, answer = await asked(start_gateway, kit, upstream, tls=tls)
    assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
    said = {"unknown authority": "unable to get local issuer", "another name": "mismatch", "expired": "expired"}
    assert said[case] in gateway.reasons[-1]
    assert upstream.requests == []


async def test_the_name_a_server_must_prove_can_be_another_than_its_address(
    start_gateway, kit, new_upstream, authority
):
    issued = authority.issue("server", "models.example")
    upstream = await new_upstream(server_tls(TlsFiles(issued.certificate, issued.key)))
    upstream.always(upstream.whole(upstream.completion()))
    tls = {"ca_file": str(authority.path), "server_name": "models.example"}
    _, answer = await asked(start_gateway, kit, upstream, tls=tls)
    assert answer.status == 200, answer.body


async def test_a_server_that_wants_a_certificate_gets_the_targets(start_gateway, kit, new_upstream, authority):
    issued, ours = authority.issue("server"), authority.issue("client", "gateway")
    files = TlsFiles(issued.certificate, issued.key, authority.path)
    upstream = await new_upstream(server_tls(files, clients="required"))
    upstream.always(upstream.whole(upstream.completion()))
    tls = {"ca_file": str(authority.path), "certificate": str(ours.certificate), "key": str(ours.key)}
    _, answer = await asked(start_gateway, kit, upstream, tls=tls)
    assert answer.status == 200, answer.body
    assert [int(serial, 16) for serial in upstream.client_serials] == [ours.serial]


async def test_a_server_that_misses_a_certificate_of_ours_is_quoted(start_gateway, kit, authority):
    issued = authority.issue("server")
    context = server_context(TlsFiles(issued.certificate, issued.key, authority.path), "required")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:  # with OpenSSL's blocking calls, which say why, as event loops' do not
            with listening.accept()[0] as accepted, contextlib.suppress(OSError):
                context.wrap_socket(accepted, server_side=True)

        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/v1"
        one = {**kit.http_target(url), "settings": {"tls": {"ca_file": str(authority.path)}}}
        gateway = await start_gateway(kit.configuration(("mock", [one])))
        answer = await gateway.chat(model="mock")
        await refusing
    assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
    assert "certificate required" in gateway.reasons[-1]


async def test_a_renewed_client_certificate_is_shown_on_new_connections(
    start_gateway, kit, new_upstream, authority, monkeypatch, eventually
):
    monkeypatch.setattr("backends.network.tls.LOOK_SECONDS", 0.0)
    issued, ours = authority.issue("server"), authority.issue("client", "gateway")
    files = TlsFiles(issued.certificate, issued.key, authority.path)
    upstream = await new_upstream(server_tls(files, clients="required"))
    upstream.always(upstream.whole(upstream.completion(), headers="connection: close\r\n"))
    tls = {"ca_file": str(authority.path), "certificate": str(ours.certificate), "key": str(ours.key)}
    gateway, answer = await asked(start_gateway, kit, upstream, tls=tls)
    renewed = authority.issue("client", "gateway")
    assert (await gateway.chat(model="mock")).status == answer.status == 200
    assert [int(serial, 16) for serial in upstream.client_serials] == [ours.serial, renewed.serial]


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "verification off": ({"tls": {"verify": False}}, "a server is always verified"),
    "an unknown field": ({"tls": {"cafile": "x"}}, "unknown field `cafile`"),
    "a key alone": ({"tls": {"key": "x"}}, "key is given without its certificate"),
    "a missing file": ({"tls": {"ca_file": "/nonexistent/ca.pem"}}, "/nonexistent/ca.pem cannot be read"),
    "a timeout that is none": ({"timeouts": {"first_token": 0}}, "must be > 0 seconds"),
    "a misspelt timeout": ({"timeouts": {"frist_token": 1}}, "unknown field `frist_token`"),
    "a timeout twice": ({"timeouts": {"first_token": 1, "first_byte": 1}}, "are the same"),
    "no header's name": ({"headers": {"x y": "s3cret"}}, "'x y' is not a header's name"),
    "a line end": ({"headers": {"x-a": "s3cret\r\nx-b: 1"}}, "x-a contains a line end"),
    "the gateway's own": ({"headers": {"Content-Length": "5"}}, "Content-Length is the gateway's own"),
    "the same twice": ({"headers": {"X-A": "s3cret", "x-a": "2"}}, "given twice"),
    "a credential in plain": ({"headers": {"api-key": "s3cret"}}, "api-key is a credential; say where it is"),
    "no text": ({"headers": {"x-a": 5}}, "Expected `str`"),
    "a variable that is not set": ({"headers": {"x-a": "env:NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE is not set"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
async def test_settings_that_cannot_be_used_stop_the_start_and_show_no_value(
    start_gateway, kit, secure, name, monkeypatch
):
    settings, words = CONTRADICTIONS[name]
    with pytest.raises(ConfigurationError) as caught:
        await start_gateway(kit.configuration(("mock", [target(kit, secure, **settings)])))
    assert words in caught.value.message and "u1" in caught.value.message or "NOT_SET" in words
    assert "s3cret" not in caught.value.message


async def test_tls_settings_for_a_plain_url_are_refused(start_gateway, kit, upstream):
    with pytest.raises(ConfigurationError, match="write https://"):
        await start_gateway(kit.configuration(("mock", [target(kit, upstream, tls={})])))


async def test_headers_of_the_target_are_sent_from_wherever_their_values_are(
    start_gateway, kit, upstream, tmp_path, monkeypatch
):
    monkeypatch.setenv("VENDOR_TOKEN", "tok-1")
    (tmp_path / "vendor.key").write_text("file-key\n")
    upstream.always(upstream.whole(upstream.completion()))
    headers = {"X-Plain": "a b, c", "X-Vendor-Token": "env:VENDOR_TOKEN", "api-key": f"file:{tmp_path}/vendor.key"}
    _, answer = await asked(start_gateway, kit, upstream, headers=headers)
    assert answer.status == 200
    sent = upstream.requests[0].headers
    assert (sent["x-plain"], sent["x-vendor-token"], sent["api-key"]) == ("a b, c", "tok-1", "file-key")


@pytest.fixture
async def keyed(start_gateway, kit, upstream, tmp_path):
    """A gateway whose target's key is in a file, and a server that takes the key "second" alone."""

    def answer(request):
        if request.headers.get("authorization") == "bearer second":
            return upstream.whole(upstream.completion())
        return upstream.whole({"error": {"message": "no"}}, 401)

    upstream.answering(answer)
    file = tmp_path / "upstream.key"
    file.write_text("first")
    one = kit.http_target(upstream.url, key=f"file:{file}")
    return await start_gateway(kit.configuration(("mock", [one]))), file


async def test_a_key_that_was_just_rotated_is_read_again_when_it_is_refused(keyed, upstream):
    gateway, file = keyed
    assert (await gateway.chat(model="mock")).error["code"] == "upstream_credentials_refused"
    assert len(upstream.requests) == 1, "the same key is not tried twice"
    file.write_text("second\n")
    assert (await gateway.chat(model="mock")).status == 200
    assert [request.headers["authorization"] for request in upstream.requests[1:]] == ["bearer first", "bearer second"]
    assert (await gateway.chat(model="mock")).status == 200
    assert len(upstream.requests) == 4
    assert [record.attempts for record in gateway.requests()] == [1, 1, 1]


async def test_a_rotation_to_another_refused_key_is_tried_once(keyed, upstream):
    gateway, file = keyed
    file.write_text("third")
    assert (await gateway.chat(model="mock")).error["code"] == "upstream_credentials_refused"
    assert [request.headers["authorization"] for request in upstream.requests] == ["bearer first", "bearer third"]


async def test_a_rotated_key_is_used_within_a_second_without_a_refusal(keyed, upstream, monkeypatch, eventually):
    monkeypatch.setattr("backends.llm.http.http_credentials._LOOK_SECONDS", 0.01)
    gateway, file = keyed
    file.write_text("second")
    assert "second" not in gateway.target("mock", "u1")._head_end
    await eventually(lambda: "second" in gateway.target("mock", "u1")._head_end, 3.0)
    assert (await gateway.chat(model="mock")).status == 200
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("content", ["", "two words", "\u4e16"])
async def test_a_rotation_that_cannot_be_used_keeps_the_old_key_and_is_said_once(keyed, upstream, caplog, content):
    gateway, file = keyed
    file.write_text(content)
    for _ in range(2):
        assert (await gateway.chat(model="mock")).error["code"] == "upstream_credentials_refused"
    said = [record for record in caplog.records if "credentials not reloaded" in record.message]
    assert len(said) == 1 and str(file) in said[0].reason
    assert all("two words" not in str(vars(record)) for record in caplog.records)
    ready = gateway.gateway.health()
    assert ready["degraded"] == ["misconfigured"] and str(file) in ready["misconfigured_targets"]["mock/u1"]
    file.write_text("second")
    assert (await gateway.chat(model="mock")).status == 200
    assert gateway.gateway.health()["degraded"] == []


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_closes_a_secure_connection(
    start_gateway, kit, secure, authority, eventually, streamed
):
    secure.always(secure.stream_head() + secure.piece(secure.chunk("Hi")) if streamed else b"", secure.STALL)
    config = kit.configuration(("mock", [target(kit, secure, tls={"ca_file": str(authority.path)})]))
    gateway = await start_gateway(config)
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=streamed))
    await eventually(lambda: secure.requests)
    await asyncio.sleep(0.02)
    assert not secure.lost_at
    client.close()
    await eventually(lambda: secure.lost_at)  # its answer would never end


async def test_a_secure_connection_that_the_server_closed_while_idle_costs_nobody_an_error(
    start_gateway, kit, secure, authority, eventually
):
    secure.always(secure.whole(secure.completion()), 0.01, secure.CLOSE)
    config = kit.configuration(("mock", [target(kit, secure, tls={"ca_file": str(authority.path)})]))
    gateway = await start_gateway(config)
    for count in range(1, 4):
        assert (await gateway.chat(model="mock")).status == 200
        await eventually(lambda count=count: len(secure.lost_at) == count)
    assert secure.accepted == 3
