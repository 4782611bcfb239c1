"""The lines of a batch's file: read however the pieces are cut, and each fault told with its line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.batches.input_lines import InputReader

URL = "/v1/chat/completions"


def line(custom_id="a", method="POST", url=URL, model="m", **body) -> bytes:
    written = {"custom_id": custom_id, "method": method, "url": url, "body": {"model": model, **body}}
    return json.dumps(written).encode()


def read(content: bytes, max_lines: int = 50_000, size: int = 1 << 20):
    reader = InputReader(URL, lambda model: model in ("m", "n"), max_lines)
    found = []
    for start in range(0, len(content), size):
        found += reader.feed(content[start : start + size])
    return reader, found + reader.end()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20, unique=True), st.integers(1, 100), st.booleans())
def test_lines_are_the_same_however_the_file_is_cut(texts, size, ends):
    lines = [line(f"id {number}", messages=[text]) for number, text in enumerate(texts)]
    reader, found = read(b"\n".join(lines) + (b"\n" if ends else b""), size=size)
    assert not reader.faults and reader.total == len(texts) and reader.model == "m"
    assert [(one.number, one.custom_id) for one in found] == [(n, f"id {n - 1}") for n in range(1, len(texts) + 1)]
    assert [json.loads(one.request)["messages"] for one in found] == [[text] for text in texts]


def test_a_body_is_kept_to_the_byte():
    body = b'{"model": "m",  "n":1.50, "x":"\\u00e9"}'
    written = b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":' + body + b"}"
    assert read(written)[1][0].request == body


def test_empty_lines_and_a_byte_order_mark_are_passed_over_and_counted():
    _, found = read(b"\xef\xbb\xbf" + line("a") + b"\r\n\r\n\n" + line("b") + b"\n")
    assert [(one.number, one.custom_id) for one in found] == [(1, "a"), (4, "b")]


def test_several_models_are_taken_and_none_is_named():
    assert read(line("a") + b"\n" + line("b", model="n"))[0].model == ""


@pytest.mark.parametrize(
    ("second", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b'{"x":' + b"[" * 5000, "invalid_json_line", None),
        (b"[]", "invalid_request", None),
        (b'{"method":"POST"}', "missing_required_parameter", "custom_id"),
        (b'{"custom_id":"b","method":"POST","url":"/v1/chat/completions"}', "missing_required_parameter", "body"),
        (
            b'{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{}}',
            "missing_required_parameter",
            "body.model",
        ),
        (line("a"), "duplicate_custom_id", "custom_id"),
        (line(""), "invalid_custom_id", "custom_id"),
        (line("x" * 513), "invalid_custom_id", "custom_id"),
        (line("b", method="GET"), "invalid_method", "method"),
        (line("b", url="/v1/embeddings"), "invalid_url", "url"),
        (line("b", model="other"), "model_not_found", "body.model"),
        (line("b", model=5), "invalid_request", "body"),
        (line("b", stream=True), "invalid_request", "body.stream"),
    ],
)
def test_a_fault_is_told_with_its_line(second, code, param):
    reader, found = read(line("a") + b"\n" + second + b"\n" + line("c"))
    assert [(fault.line, fault.code, fault.param) for fault in reader.faults] == [(2, code, param)]
    assert [one.custom_id for one in found] == ["a", "c"]


def test_no_fault_repeats_a_prompt():
    reader, _ = read(
        b'{"custom_id": ["secret"]}\n{"custom_id":"b","method":"POST","url":"u","body":{"model":["secret"]}}'
    )
    assert len(reader.faults) == 2 and all("secret" not in fault.message for fault in reader.faults)


@pytest.mark.parametrize("empty", [b"", b"\n\n", b"  \r\n"])
def test_a_file_without_requests_is_refused(empty):
    assert [fault.code for fault in read(empty)[0].faults] == ["empty_file"]


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, True), (6, False)])
def test_the_number_of_requests_is_bounded_below_at_and_above(count, fits):
    reader, _ = read(b"\n".join(line(str(number)) for number in range(count)), max_lines=5)
    assert reader.faults == [] if fits else [fault.code for fault in reader.faults] == ["too_many_requests"]


def test_a_file_of_nothing_but_faults_is_not_read_on():
    reader, _ = read(b"{\n" * 500)
    assert len(reader.faults) == 50 and reader.has_failed
