"""That the fuzzing sees what is wrong: answers that are none, errors out of shape, properties that do not hold."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from bench.fuzz import write_down
from bench.fuzzing.answers import Answer, Fault, check_answer, check_error, ends_well, error_of, read_answers, spoken_in
from bench.fuzzing.bodies import Mutation, Raw, mutated
from bench.fuzzing.properties import Failed, Property, attempt
from bench.fuzzing.requests import Splice, cut, spliced
from gateway.apis.messages.operation import MESSAGES

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


def test_answers_are_read_one_after_another() -> None:
    found = read_answers(b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE + CHUNKED + WHOLE, is_closed=False)
    assert [(answer.status, answer.body) for answer in found] == [(200, b"{}")] * 3
    [last] = read_answers(HEAD + b"\r\nuntil it closes", is_closed=True)
    assert last.body == b"until it closes"


@pytest.mark.parametrize(
    "data",
    [
        WHOLE[:-1],
        CHUNKED[:-1],
        CHUNKED.replace(b"2\r\n{}", b"3\r\n{}"),
        HEAD + b"\r\n",
        WHOLE + b"x",
        b"garbage\r\n\r\n",
        WHOLE.replace(b"content-length", b"content-type"),
        b"HTTP/1.1 200 OK\r\nx: a\nb\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_half_an_answer_and_what_is_none_is_a_fault(data: bytes) -> None:
    with pytest.raises(Fault):
        read_answers(data, is_closed=False)


OPENAI = b'{"error":{"message":"m","type":"api_error","param":null,"code":"c"}}'


def test_an_error_has_its_own_apis_shape() -> None:
    assert check_error(OPENAI)["code"] == "c"
    theirs = (
        b'{"type":"error","error":{"type":"api_error","message":"m","details":{"error_code":"c"}},"request_id":null}'
    )
    assert check_error(theirs, MESSAGES.errors)["message"] == "m"
    for body, shape in ((OPENAI, MESSAGES.errors), (theirs, None), (OPENAI.replace(b"api_error", b"oops"), None)):
        with pytest.raises(Fault):
            check_error(body, shape) if shape is not None else check_error(body)


@pytest.mark.parametrize(("status", "body"), [(299, b"{}"), (200, b"<html>"), (500, b"{}"), (400, b"oops")])
def test_an_answer_that_is_not_documented_is_a_fault(status: int, body: bytes) -> None:
    with pytest.raises(Fault):
        check_answer(Answer(status, {"content-type": "application/json"}, body))


def stream(*events: bytes) -> Answer:
    body = b"".join(b"data: " + event + b"\n\n" for event in events)
    return Answer(200, {"content-type": "text/event-stream"}, body)


def test_a_streams_text_and_its_end_are_told_in_every_apis_words() -> None:
    chat = stream(b'{"choices":[{"delta":{"content":"a"}}]}', b'{"choices":[{"text":"b"}]}', b"[DONE]")
    assert spoken_in(chat) == "ab" and ends_well(chat) and error_of(chat) is None
    message = stream(b'{"type":"content_block_delta","delta":{"text":"c"}}', b'{"type":"message_stop"}')
    assert spoken_in(message) == "c" and ends_well(message)
    response = stream(b'{"type":"response.output_text.delta","delta":"d"}', b'{"type":"response.completed"}')
    assert spoken_in(response) == "d" and ends_well(response)
    broken = stream(b'{"choices":[{"delta":{"content":"a"}}]}', OPENAI)
    found = error_of(broken)
    assert not ends_well(broken) and found is not None and found["code"] == "c"
    with pytest.raises(Fault):
        Answer(200, {}, b"data: {}").events()


def test_bytes_are_cut_without_loss_and_changed_where_told() -> None:
    assert cut(b"abcdef", [0.5, 0.5, 1.0, 0.0]) == [b"abc", b"def"]
    assert spliced(b"abcdef", [Splice(0.5, 1, b"XY"), Splice(0.0, 0, b"-")]) == b"-abcXYef"


@pytest.mark.parametrize(
    ("change", "written"),
    [
        (Mutation(("a", "b", 0), "replace", Raw(b"NaN")), b'{"a":{"b":[NaN]}}'),
        (Mutation(("a", "b"), "delete", Raw(b"")), b'{"a":{}}'),
        (Mutation(("a", "b"), "duplicate", Raw(b"2")), b'{"a":{"b":[1],"b":2}}'),
        (Mutation(("a", "b"), "wrap", Raw(b"")), b'{"a":{"b":[[1]]}}'),
        (Mutation(("a",), "add", Raw(b"'")), b'{"a":{"b":[1]},"unheard_of":\'}'),
        (Mutation(("a", "c", 5), "delete", Raw(b"")), b'{"a":{"b":[1]}}'),
    ],
)
def test_a_body_is_changed_where_told(change: Mutation, written: bytes) -> None:
    assert mutated({"a": {"b": [1]}}, [change]) == written


def test_the_smallest_example_that_breaks_a_property_is_told_and_written_down(tmp_path: Path) -> None:
    recovered = []

    def run(work: Any) -> None:
        try:
            work.send(None)
        except StopIteration:
            return

    async def check(rig: Any, example: int) -> None:
        if example > 100:
            raise Fault(f"{example} is too much")

    async def nothing() -> None:
        recovered.append(True)

    rig: Any = SimpleNamespace(run=run, settle=nothing, recover=nothing, check_descriptors=lambda: None)
    tried = Property("small_numbers", lambda rig: st.integers(0, 10_000), check)
    with pytest.raises(Failed) as failed:
        attempt(rig, tried, 200, seed=1)
    assert failed.value.example == 101 and recovered
    file = write_down(failed.value, 1, tmp_path / "fuzz")
    assert file.name == "small_numbers-1.txt" and "101 is too much" in file.read_text()
    assert attempt(rig, Property("fine", lambda rig: st.just(1), check), 10) >= 1
