"""The data plane under what nobody should send: some seconds of `python -m bench.fuzz`, and every byte once."""

from collections.abc import Iterator

import pytest

from bench.fuzzing.model_server import chunked as chunked_body
from bench.fuzzing.model_server import event, stream_head, whole
from bench.fuzzing.properties import PROPERTIES, Property, attempt
from bench.fuzzing.request_checks import leave_at_every_byte
from bench.fuzzing.requests import Asked
from bench.fuzzing.rig import KEY, SERVED, FuzzRig
from bench.fuzzing.streams import Told
from bench.fuzzing.upstream_checks import Served, cut_short_at_every_byte

EXAMPLES = 15  # `python -m bench.fuzz` tries thousands


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzRig]:
    with FuzzRig(tmp_path_factory.mktemp("fuzz")) as rig:
        yield rig


@pytest.mark.parametrize("tried", PROPERTIES, ids=lambda tried: tried.name)
def test_it_holds_for_whatever_is_tried(rig: FuzzRig, tried: Property) -> None:
    assert attempt(rig, tried, EXAMPLES) >= EXAMPLES


def chunked(data: bytes) -> bytes:
    head, _, body = data.partition(b"\r\n\r\n")
    head = head.rpartition(b"\r\nContent-Length")[0] + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"5;a=b\r\n%b\r\n%x\r\n%b\r\n0\r\nx-trailer: a\r\n\r\n" % (body[:5], len(body) - 5, body[5:])


@pytest.mark.parametrize("framing", ["a length", "chunks", "pipelined", "expected"])
def test_a_client_may_leave_after_every_byte(rig: FuzzRig, framing: str) -> None:
    good = rig.request(rig.operations[0])
    data = {
        "a length": good,
        "chunks": chunked(good),
        "pipelined": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2 + good,
        "expected": good.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n", 1),
    }[framing]
    rig.run(leave_at_every_byte(rig, Asked(data, 200)))
    [answer] = rig.run(rig.ask(data))[-1:]
    assert answer.status == 200
    rig.run(rig.settle())
    rig.check_descriptors()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_server_may_leave_after_every_byte(rig: FuzzRig, streamed: bool) -> None:
    usage = b'"usage":{"prompt_tokens":7,"completion_tokens":2}'
    if streamed:
        text, end = b'{"choices":[{"delta":{"content":"Hi"}}]}', b'{"choices":[{"delta":{},"finish_reason":"stop"}],%b}'
        data = stream_head() + chunked_body([event(text), event(end % usage), event(b"[DONE]")])
    else:
        data = whole(b'{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],%b}' % usage)
    told = Told(data, "Hi", ((7, 2),), data.find(b'"usage"'), len(data))
    for operation, model, is_stream in rig.answered:
        if model == SERVED and is_stream == streamed and operation.path == "/chat/completions":
            step = 1 if operation.paths[0].endswith(operation.path) else 5  # the others are chats in other words
            rig.run(cut_short_at_every_byte(rig, Served(operation, streamed, told, ()), step))
    rig.check_descriptors()


def test_the_key_and_the_prompt_of_the_fuzzing_are_what_it_looks_for(rig: FuzzRig) -> None:
    assert KEY.encode() in rig.request(rig.operations[0])
    assert any(model == SERVED for _, model, _ in rig.answered)
