"""What a native stream of the Responses API keeps for its end is its text, however many events it came in."""

import json
from typing import Any

import pytest

from contracts.errors import ContentFiltered
from contracts.metering.usage import Usage
from gateway.apis.responses.stream_tracker import ResponseStreamTracker


def event(kind: str, number: int, **fields: Any) -> bytes:
    data = {"type": f"response.{kind}", "sequence_number": number, **fields}
    return f"event: response.{kind}\ndata: {json.dumps(data)}\n\n".encode()


def begun() -> ResponseStreamTracker:
    passage = ResponseStreamTracker()
    passage.take(event("created", 0, response={"id": "resp_1", "object": "response", "model": "m"}))
    return passage


def output_of(passage: ResponseStreamTracker) -> list[dict[str, Any]]:
    ended = passage.ending(ContentFiltered("stopped"), Usage(input_text=1, output_text=2))
    response = json.loads(ended.split(b"data: ", 1)[1])["response"]
    assert response["id"] == "resp_1" and response["status"] == "incomplete"
    output: list[dict[str, Any]] = response["output"]
    return output


@pytest.mark.parametrize("pieces", [0, 1, 255, 256, 257, 5_000])
def test_an_open_message_is_ended_with_all_its_text_and_keeps_few_events(pieces: int) -> None:
    passage = begun()
    passage.take(event("output_item.added", 1, item={"type": "message", "id": "msg_1", "content": []}))
    for number in range(pieces):
        passage.take(event("output_text.delta", number + 2, delta=f"{number} "))
        assert len(passage._pieces) < 256
    text = "".join(f"{number} " for number in range(pieces))
    output = output_of(passage)
    assert [part["text"] for item in output for part in item["content"]] == ([text] if text else [])
    assert all(item["status"] == "incomplete" for item in output)


def test_a_whole_item_stands_as_it_came_and_the_next_one_begins_without_its_text() -> None:
    passage = begun()
    whole = {"type": "message", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "a"}]}
    passage.take(event("output_item.added", 1, item={"type": "message", "id": "msg_1", "content": []}))
    passage.take(event("output_text.delta", 2, delta="a"))
    passage.take(event("output_item.done", 3, item=whole))
    passage.take(event("output_item.added", 4, item={"type": "message", "id": "msg_2", "content": []}))
    passage.take(event("output_text.delta", 5, delta="b"))
    first, second = output_of(passage)
    assert first == whole
    assert (second["id"], second["content"][0]["text"]) == ("msg_2", "b")


def test_the_end_has_the_number_after_the_last_event() -> None:
    passage = begun()
    passage.take(event("output_text.delta", 41, delta="x"))
    ended = passage.ending(ContentFiltered("stopped"), Usage())
    assert json.loads(ended.split(b"data: ", 1)[1])["sequence_number"] == 42
