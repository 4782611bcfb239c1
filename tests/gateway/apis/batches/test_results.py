"""The line that stands for an outcome: one line of JSON, whatever the answer looks like, with its usage counted."""

import json
from uuid import UUID

import pytest

from contracts.objects.batches import BatchUsage, NewLine
from gateway.apis.batches.line_exchange import LineAnswer
from gateway.apis.batches.results import answered, unanswered

LINE = NewLine(7, "a", b"{}")
ID = UUID(int=5)


def of(body: bytes, status: int = 200):
    return answered(LINE, LineAnswer(status, body, b"x-request-id: r1\r\n"), ID)


def test_an_answer_on_several_lines_becomes_one():
    outcome = of(b'{\n  "text": "a\\nb",\r\n  "n": 1.50\n}')
    assert b"\n" not in outcome.result and b"1.50" in outcome.result, "numbers stay as they were written"
    found = json.loads(outcome.result)
    assert found["id"] == f"batch_req_{ID.hex}" and found["custom_id"] == "a" and found["error"] is None
    assert found["response"] == {"status_code": 200, "request_id": "r1", "body": {"text": "a\nb", "n": 1.5}}
    assert (outcome.number, outcome.is_failed) == (7, False)


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            BatchUsage(9, 4, 5, 2),
        ),
        (
            {
                "input_tokens": 9,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
            BatchUsage(9, 4, 5, 2),
        ),
        (
            {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3},
            BatchUsage(16, 4, 5, 0),
        ),
        ({"prompt_tokens": 9, "total_tokens": 9}, BatchUsage(9, 0, 0, 0)),
        ({"prompt_tokens": "nine"}, BatchUsage()),
        (None, BatchUsage()),
    ],
)
def test_usage_is_read_in_the_words_of_every_api(usage, counted):
    assert of(json.dumps({"usage": usage}).encode()).usage == counted


def test_an_error_s_line_counts_no_usage():
    outcome = of(b'{"error": {}, "usage": {"prompt_tokens": 3}}', 400)
    assert outcome.is_failed and outcome.usage == BatchUsage()


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a": \xff}'])
def test_an_answer_that_is_no_json_does_not_break_the_file(body):
    outcome = of(body)
    assert outcome.is_failed and json.loads(outcome.result)["error"]["code"] == "invalid_answer"


def test_a_line_that_was_never_answered_says_why():
    found = json.loads(unanswered(LINE, "batch_expired", "too late", ID).result)
    assert found["response"] is None and found["error"] == {"code": "batch_expired", "message": "too late"}
