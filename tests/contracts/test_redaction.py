"""What is found and replaced, what is left alone, and how an operator adds a form."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.redaction import Redactor, is_card_number, read_patterns
from contracts.said import answered, asked

REDACTOR = Redactor()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("write to ada.l@example.co.uk today", "write to [email] today"),
        ("key sk-abcdefghijklmnop1234, and AKIAIOSFODNN7EXAMPLE", "key [key], and [key]"),
        ("tk-" + "A" * 43, "[key]"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: [token]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "[token]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "[private_key]"),
        ("card 4111 1111 1111 1111.", "card [card]."),
        ("card 4111-1111-1111-1112.", "card 4111-1111-1111-1112."),  # one digit off: not a card
        ("call +49 30 1234567 now", "call [phone] now"),
        ("call (555) 123-4567", "call [phone]"),
        ("order 2026-11-22, 3.14159265, sk-short, a@b, version 1.2.3", None),
        ("x = 12345678", None),
    ],
)
def test_secrets_and_personal_data_are_replaced_by_their_name(text: str, left: str | None) -> None:
    assert REDACTOR.redact(text) == (text if left is None else left)


def test_card_numbers_have_13_to_19_digits() -> None:
    digits = "4222222222222"  # 13, valid
    assert is_card_number(digits) and not is_card_number(digits[1:])
    assert not is_card_number("0" * 16) and not is_card_number("4" * 20)


@given(st.text(max_size=300))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = REDACTOR.redact(text)
    assert REDACTOR.redact(once) == once


@pytest.mark.parametrize("text", ["a" * 200_000, "1 " * 100_000, "a@" * 100_000, "-----BEGIN " * 20_000])
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    REDACTOR.redact(text)
    assert time.process_time() - began < 5


def test_what_json_escapes_is_found_and_names_of_fields_too() -> None:
    body = rb'{"messages": [{"content": "line\nada\u0040example.org"}], "model": "m", "input": {"ada@example.org": 1}}'
    said = json.loads(asked(body, REDACTOR.redact_all))
    assert said == {"messages": [{"content": "line\n[email]"}], "input": {"[email]": 1}}
    image = "data:image/png;base64," + "A" * 2000
    assert json.loads(asked(json.dumps({"input": image}).encode(), REDACTOR.redact_all))["input"].startswith("[2022 ch")
    assert asked(b"not json", REDACTOR.redact_all) == asked(b"[1]", REDACTOR.redact_all) == ""


def test_what_is_split_between_two_pieces_of_a_stream_is_found() -> None:
    pieces = [{"choices": [{"delta": {"content": part}}]} for part in ("I am ada@exa", "mple.org.")]
    stream = b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces) + b"data: [DONE]\n\n"
    assert answered(stream, REDACTOR.redact_all) == "I am [email]."
    anthropic = b'event: content_block_delta\ndata: {"delta": {"type": "text_delta", "text": "Hi"}}\n\n'
    assert answered(anthropic, REDACTOR.redact_all) == "Hi"
    call = b'data: {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}\n\n'
    assert answered(call, REDACTOR.redact_all) == "{}"
    assert json.loads(answered(b'{"choices": [{"text": "a@b.cd"}], "id": 1}', REDACTOR.redact_all)) == {
        "choices": [{"text": "[email]"}]
    }


def test_an_operator_adds_forms_and_a_wrong_one_is_named() -> None:
    own = read_patterns("# ours\n\nstaff_id = \\bEMP-\\d{6}\\b\n")
    assert Redactor(own).redact("EMP-123456 and a@b.cd") == "[staff_id] and [email]"
    for wrong in ("Name = x", "name", "name = (", "name = x*"):
        with pytest.raises(ConfigurationError, match="line 1 of the content patterns"):
            read_patterns(wrong)
