"""A server that repeats its credentials in errors: callers, logs, records and spans have none of them."""

import json
import logging
from typing import Any

import pytest

from backends.llm.echoed_credentials import REMOVED, without_credentials
from tests.gateway.model_server import Upstream
from tests.gateway.test_tracing import sent_to

KEY, HEADER, PLAIN = "0plain-key-of-no-known-shape", "vendor!token/1", "department-of-tests"
OTHERS = "sk-proj-0123456789abcdef"
ECHO = (
    f"bad request; you sent Authorization: Bearer {KEY}, X-Vendor-Token: {HEADER}, vendor%21token%2F1, "
    f"X-Team: {PLAIN}; and once {OTHERS}. Shorten the prompt"
)
SECRETS = (KEY, HEADER, "vendor%21token%2F1", PLAIN, OTHERS)
up = Upstream
CASES = {
    "a refusal": up.whole({"error": {"message": ECHO}}, 400),
    "a refusal in vLLM's former shape": up.whole({"message": ECHO}, 422),
    "a refusal that is cut within the key": up.whole({"error": {"message": "x" * 480 + " " + KEY}}, 400),
    "an unknown model": up.whole({"error": {"message": ECHO}}, 404),
    "a fault": up.whole({"error": {"message": ECHO}}, 500),
    "an error with status 200": up.whole({"error": {"message": ECHO}}),
    "an error event": up.streamed(up.chunk("one "), up.event({"error": {"message": ECHO}})),
    "an error event in vLLM's former shape": up.streamed(up.chunk("one "), up.event({"message": ECHO})),
    "an error in place of a stream": up.stream_head() + up.piece(json.dumps({"error": ECHO}).encode()) + up.END,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_no_credential_that_a_server_repeats_is_shown_or_kept(
    case: str, is_streamed: bool, start_gateway: Any, kit: Any, new_upstream: Any, tmp_path: Any, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    upstream, receiver = await new_upstream(), await new_upstream()
    receiver.always(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "token").write_text(HEADER)
    target = kit.http_target(upstream.url, key=f"file:{tmp_path}/key")
    target["settings"]["headers"] = {"X-Vendor-Token": f"file:{tmp_path}/token", "X-Team": PLAIN}
    config = kit.configuration(("mock", [target]))
    gateway = await start_gateway(config, collector_url=f"http://127.0.0.1:{receiver.port}", tracing=True)
    upstream.always(CASES[case])
    answer = await gateway.chat(model="mock", stream=is_streamed)
    assert upstream.requests[0].headers["authorization"] == f"bearer {KEY}"
    await gateway.gateway.stop()
    spans = sent_to(receiver)
    assert spans
    seen = b"".join([answer.body, *spans, *(one.body for one in receiver.requests)]).decode("latin-1")
    seen += repr([vars(line) for line in caplog.records]) + repr(gateway.requests())
    assert [secret for secret in (*SECRETS, KEY[:12]) if secret in seen] == []
    if case == "a refusal":
        assert answer.status == 400
        assert "Shorten the prompt" in answer.error["message"] and REMOVED in answer.error["message"]


def test_a_value_that_is_cut_off_is_removed_from_six_characters_on() -> None:
    for length in range(1, len(KEY)):
        shown = without_credentials(f"you sent {KEY[:length]}", (KEY,))
        assert shown == ("you sent [credential]" if length >= 6 else f"you sent {KEY[:length]}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [credential]"),
        ("Incorrect API key provided: abcd1234efgh.", "Incorrect API key provided: [credential]"),
        ("no tk-abcdefgh12345678 here", "no [credential] here"),
        ("sk-ant-***********wxyz", "[credential]"),
        ("AIzaSyA0123456789abcdefghij", "[credential]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "[credential]"),
        ("send a bearer token with each request", None),
        ("bearer authentication required", None),
        ("max_tokens: 9 > 8 in messages[0].content", None),
        ("the API key: missing", None),
        ("a basic understanding of task-oriented work", None),
        ("the key is abc and abcd-e, not (abcd)", "the key is abc and abcd-e, not ([credential])"),
    ],
)
def test_shapes_of_keys_are_removed_and_sentences_stay(text: str, shown: str | None) -> None:
    assert without_credentials(text, ("abcd", "abc", "")) == (text if shown is None else shown)
