"""What clients and servers of a native API may try against each other: the gateway passes on neither's secrets nor
tricks."""

import gzip
import json
from typing import Any

import pytest

from tests.gateway.apis.native import provider

MODEL = "claude"
TEXT: Any = {"type": "text", "text": "one two three"}
BODY: Any = {"model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def start(start_gateway, kit, upstream, monkeypatch):
    """Start a gateway whose model is at a server that speaks an API, with a key of the gateway's."""
    monkeypatch.setenv("CLAUDE_API_KEY", "sk-ant-the-gateways-own-key")

    async def start(api: str = "messages", **settings: Any) -> Any:
        target = kit.http_target(upstream.url, key="env:CLAUDE_API_KEY", model="deployment-eu-7")
        target["settings"] = {"apis": [api], **target["settings"], **settings}
        return await start_gateway(kit.configuration((MODEL, [target])))

    return start


def post(kit, headers: dict[str, str] | None = None, path: str = "/v1/messages", **more: Any) -> bytes:
    return bytes(kit.request(json.dumps(BODY | more).encode(), headers or {}, path=path))


SMUGGLED = {
    "cookie": "session=the-clients",
    "x-api-key": "the-clients-other-key",
    "proxy-authorization": "Basic dGhlLWNsaWVudA==",
    "x-goog-api-key": "the-clients-google-key",
    "openai-organization": "org-of-the-client",
    "x-forwarded-for": "10.9.8.7",
    "x-forwarded-host": "elsewhere.example",
    "forwarded": "for=10.9.8.7",
    "connection": "keep-alive, anthropic-beta, x-secret",
    "x-secret": "hop",
    "te": "trailers",
    "upgrade": "h2c",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-tollkeeper-tags": "a=b",
}


async def test_of_a_clients_headers_only_versions_and_betas_reach_the_provider(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start()
    given = {name: value for name, value in SMUGGLED.items() if name not in ("x-api-key", "connection", "upgrade")}
    answer = await gateway.ask(post(kit, {**given, "anthropic-beta": "a-1"}))
    assert answer.status == 200, answer.body
    [sent] = upstream.requests
    allowed = {"host", "x-api-key", "content-type", "accept", "accept-encoding", "anthropic-version", "anthropic-beta"}
    allowed |= {"x-request-id", "content-length", "traceparent", "tracestate"}
    assert set(sent.headers) <= allowed
    assert sent.headers["x-api-key"] == "sk-ant-the-gateways-own-key" and sent.headers["anthropic-beta"] == "a-1"
    assert sent.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("beta", ["x" * 5000, "caf\xe9", "a\tb\x01c"])
async def test_a_beta_header_that_no_header_should_hold_is_not_passed_on(start, upstream, kit, beta):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start()
    raw = post(kit).replace(b"\r\n", b"\r\nanthropic-beta: " + beta.encode("latin-1") + b"\r\n", 1)
    answer = await gateway.ask(raw)
    assert answer.status in (200, 400, 431)
    assert not any("anthropic-beta" in sent.headers for sent in upstream.requests)


async def test_betas_on_several_lines_are_one_list(start, upstream, kit):
    upstream.always(upstream.whole(provider.message(TEXT)))
    gateway = await start()
    lines = b"\r\nanthropic-beta: a-1\r\nAnthropic-Beta: b-2, c-3\r\n"
    assert (await gateway.ask(post(kit).replace(b"\r\n", lines, 1))).status == 200
    assert upstream.requests[0].headers["anthropic-beta"] == "a-1, b-2, c-3"


async def test_a_providers_headers_reach_no_client(start, upstream, kit):
    own = {
        "set-cookie": "provider=1; domain=example.com",
        "x-internal-host": "10.1.2.3",
        "via": "1.1 inner-proxy",
        "server": "envoy at deployment-eu-7",
        "location": "http://169.254.169.254/",
        "anthropic-organization-id": "org_the_companys",
        "access-control-allow-origin": "*",
        "x-tollkeeper-dropped": "made-up",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in own.items()).encode()
    whole = upstream.whole(provider.message(TEXT)).replace(b"\r\n", b"\r\n" + lines, 1)
    stream = upstream.streamed(*provider.message_events(TEXT))
    upstream.then(whole)
    upstream.then(stream[0].replace(b"\r\n", b"\r\n" + lines, 1) if isinstance(stream, tuple) else stream)
    gateway = await start()
    for is_stream in (False, True):
        answer = await gateway.ask(post(kit, stream=is_stream))
        assert answer.status == 200
        assert not set(answer.headers) & set(own)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("name", ["a\r\nset-cookie: x=1", "a\nb", "caf\u00e9", "a,b", "x" * 50, "\x00", ""])
async def test_a_dropped_fields_name_cannot_write_headers(start_gateway, kit, upstream, path, name):
    upstream.always(upstream.whole(upstream.completion("ok")))
    target = kit.http_target(upstream.url) | {"settings": {"unknown_fields": "drop"}}
    gateway = await start_gateway(kit.configuration((MODEL, [target])))
    body = BODY if path == "/v1/messages" else {"model": MODEL, "input": "hi", "store": False}
    answer = await gateway.ask(kit.request(json.dumps(body | {name: 1}).encode(), path=path))
    assert answer.status == 200, answer.body
    assert "set-cookie" not in answer.headers
    said = answer.headers["x-tollkeeper-dropped"]
    assert len(said) <= 1024 and said.isprintable() and said.isascii()


@pytest.mark.parametrize("kind", ["http://10.0.0.5/deployment-eu-7", "<script>", "x" * 500, "Invalid Request\r\nX: y"])
async def test_an_errors_type_and_code_are_words_or_are_left_out(start, upstream, kit, kind):
    error = {"error": {"type": kind, "code": "invalid_value", "message": "no", "param": "deployment-eu-7"}}
    upstream.always(upstream.whole(error, 400))
    for api, path, body in (
        ("messages", "/v1/messages", BODY),
        ("responses", "/v1/responses", {"model": MODEL, "input": "hi", "store": False}),
    ):
        gateway = await start(api)
        answer = await gateway.ask(kit.request(json.dumps(body).encode(), path=path))
        assert (
            answer.status == 400 and kind not in answer.body.decode() and json.dumps(kind)[1:-1] not in str(answer.body)
        )
        assert "deployment-eu-7" not in answer.body.decode()


@pytest.mark.parametrize("api", ["messages", "responses", "gemini"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_errors_name_no_deployment_address_or_key(start, upstream, kit, api, streamed):
    host = upstream.url.removeprefix("http://").removesuffix("/v1")
    words = f"deployment-eu-7 at {host} of 10.1.2.3:8443 refused key sk-ant-the-gateways-own-key for inner.svc.local"
    error = {"type": "error", "error": {"type": "api_error", "code": "internal", "message": words, "status": words}}
    gateway = await start(api)
    if api == "messages":
        path, body = "/v1/messages", BODY
        begun = provider.message_events(TEXT)[:4]
        fault = provider.event(error)
    elif api == "responses":
        path, body = "/v1/responses", {"model": MODEL, "input": "hi", "store": False}
        begun = provider.response_events(provider.said("one two"))[:4]
        fault = provider.event({"type": "error", "code": "internal", "message": words, "sequence_number": 9})
    else:
        path = f"/v1beta/models/{MODEL}:" + ("streamGenerateContent?alt=sse" if streamed else "generateContent")
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        begun = provider.gemini_events(provider.gemini_answer({"text": "one"}, finish=None))
        fault = provider.gemini_events(error)[0]
    if streamed:
        upstream.always(upstream.streamed(*begun, fault))
        body = body | ({"stream": True} if api != "gemini" else {})
    else:
        upstream.always(upstream.whole(error, 400))
    answer = await gateway.ask(kit.request(json.dumps(body).encode(), path=path))
    for secret in ("deployment-eu-7", host, "sk-ant-the-gateways-own-key", "10.1.2.3", "inner.svc.local"):
        assert secret not in answer.body.decode(), secret
    [record] = gateway.requests()
    assert record.outcome in ("error", "rejected")
    assert "sk-ant-the-gateways-own-key" not in str(record)


BOMB = gzip.compress(b"x" * (64 << 20))


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_compressed_answer_is_refused_and_never_unpacked(start, upstream, kit, status, streamed):
    kind = b"text/event-stream" if streamed else b"application/json"
    head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    upstream.always(head % (status, kind, len(BOMB)) + BOMB)
    gateway = await start()
    answer = await gateway.ask(post(kit, stream=streamed))
    assert answer.status in (400, 502) and len(answer.body) < 2000


EVENTS = provider.message_events(TEXT)


@pytest.mark.parametrize(
    "stream",
    [
        b"\xef\xbb\xbf" + b"".join(EVENTS),
        b"".join(EVENTS).replace(b"\n", b"\r\n"),
        b"".join(EVENTS).replace(b"\n", b"\r"),
        b": comment\n\n" + b"".join(EVENTS).replace(b"data: ", b"data:"),
        b"".join(one.replace(b"data: {", b"data: {\ndata: ", 1) for one in EVENTS),
        b"retry: 5\nid: 7\n\n" + b"".join(EVENTS),
    ],
)
async def test_every_framing_of_the_standard_is_read_and_counted(start, upstream, kit, stream):
    upstream.always(upstream.stream_head(), upstream.piece(stream), upstream.END)
    gateway = await start()
    answer = await gateway.ask(post(kit, stream=True))
    assert answer.status == 200 and b"message_stop" in answer.body
    [record] = gateway.requests()
    assert (record.outcome, record.usage.output_text, record.usage.input_text) == ("ok", 7, 10)


async def test_an_event_without_end_is_bounded(start, upstream, kit):
    piece = upstream.piece(b"x" * 60_000)
    upstream.always(upstream.stream_head(), upstream.piece(b"data: "), *[piece] * 200, upstream.END)
    gateway = await start()
    answer = await gateway.ask(post(kit, stream=True))
    assert len(answer.body) < 5000
    assert gateway.requests()[0].outcome == "error"


WRONG: list[Any] = [
    {"input_tokens": -5, "output_tokens": 7},
    {"input_tokens": 10, "output_tokens": -7},
    {"input_tokens": 10**30, "output_tokens": 7},
    {"input_tokens": 2**63, "output_tokens": 7},
    {"input_tokens": 10, "output_tokens": 1e18},
    {"input_tokens": "10", "output_tokens": "7"},
    {"input_tokens": 10.5, "output_tokens": 7},
    {"input_tokens": True, "output_tokens": 7},
    {"input_tokens": None, "output_tokens": None},
    {"cache_read_input_tokens": -1, "input_tokens": 10, "output_tokens": 7},
    {"cache_creation": {"ephemeral_5m_input_tokens": -3, "ephemeral_1h_input_tokens": 9}, "input_tokens": 1},
    {},
    [],
    "none",
    7,
    None,
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("usage", WRONG, ids=str)
async def test_a_usage_that_cannot_be_true_loses_no_answer_and_is_charged_by_estimate(
    start, upstream, kit, usage, streamed
):
    whole = provider.message(TEXT) | {"usage": usage}
    if usage == {}:
        del whole["usage"]
    events = [
        provider.event({"type": "message_start", "message": whole | {"content": []}}),
        *provider.message_events(TEXT)[1:-2],
        provider.event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
        provider.event({"type": "message_stop"}),
    ]
    upstream.always(upstream.streamed(*events) if streamed else upstream.whole(whole))
    gateway = await start()
    answer = await gateway.ask(post(kit, stream=streamed))
    assert answer.status == 200
    [record] = gateway.requests()
    assert record.outcome == "ok"
    assert record.charged_pico_usd is None or 0 <= record.charged_pico_usd < 10**15
    for name in record.usage.__struct_fields__ if hasattr(record.usage, "__struct_fields__") else ():
        count = getattr(record.usage, name)
        assert count is None or 0 <= count < 2**63
