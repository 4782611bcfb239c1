"""What is found and replaced, what is left alone, and how an operator adds a form."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.recording.message_text import answer_text, prompt_text
from contracts.recording.redaction import (
    _NUMBERS,
    DEFAULT_PATTERNS,
    EMAIL,
    SECRETS,
    Redactor,
    _without,
    _without_numbers,
    is_card_number,
    may_hold_secrets,
    read_patterns,
)

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
        ("pay 4111 1111 1111 1111 12/27 123, thanks", "pay [card] 12/27 123, thanks"),
        ("7 4111111111111111 and 12 4111-1111-1111-1111 99", "7 [card] and 12 [card] 99"),
        ("rows 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19", None),
        ("postgres://ada:hunter2@db/books", "postgres://[password]@db/books"),
        ("gsk_abcdefghijklmnopqrstuvwx and sk-" + "a" * 400, "[key] and [key]"),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\nlQ/a==\n-----END PGP PRIVATE KEY BLOCK----- ok",
            "[private_key] ok",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE\n-----END RSA PRIVATE KEY-----",
            "[private_key]",
        ),
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


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "1 " * 100_000, "a@" * 100_000, "-----BEGIN " * 20_000, "eyJ-" * 250_000 + " "]
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    REDACTOR.redact(text)
    assert time.process_time() - began < 5


def test_what_json_escapes_is_found_and_names_of_fields_too() -> None:
    body = rb'{"messages": [{"content": "line\nada\u0040example.org"}], "model": "m", "input": {"ada@example.org": 1}}'
    said = json.loads(prompt_text(body, REDACTOR.redact_all))
    assert said == {"messages": [{"content": "line\n[email]"}], "input": {"[email]": 1}}
    image = "data:image/png;base64," + "A" * 2000
    assert json.loads(prompt_text(json.dumps({"input": image}).encode(), REDACTOR.redact_all))["input"].startswith(
        "[2022 ch"
    )
    assert prompt_text(b"not json", REDACTOR.redact_all) == prompt_text(b"[1]", REDACTOR.redact_all) == ""


@pytest.mark.parametrize(
    ("secret", "left"),
    [
        ("sk-abcdefghijklmnop1234", "[key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
        ("Bearer abcdefghijklmnop", "[token]"),
        ("+49 30 1234567", "[phone]"),
        ("555-123-4567", "[phone]"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\nabcd\n-----END PRIVATE KEY-----", "[private_key]"),
    ],
)
def test_what_begins_a_line_of_json_within_a_text_is_found(secret: str, left: str) -> None:
    arguments = json.dumps({"file": f"first\n{secret}\n"})
    assert REDACTOR.redact(arguments) == json.dumps({"file": f"first\n{left}\n"})


def test_a_card_number_that_is_a_json_number_is_found_and_other_numbers_stay() -> None:
    said = {"card": 4111111111111111, "other": 4111111111111112, "few": 3, "yes": True, "share": 0.5}
    assert REDACTOR.redact_all(said) == {**said, "card": "[card]"}


def test_texts_that_come_in_turns_hide_nothing_from_one_another() -> None:
    def piece(index: int, **delta: str) -> bytes:
        return b"data: " + json.dumps({"choices": [{"index": index, "delta": delta}]}).encode() + b"\n\n"

    key = "sk-abcdefghijklmnop1234"
    stream = piece(0, content=key[:9]) + piece(1, content="Hello ") + piece(0, content=key[9:])
    assert answer_text(stream + piece(1, content="there"), REDACTOR.redact_all) == "[key]\nHello there"
    assert answer_text(piece(0, reasoning="so") + piece(0, content=key), REDACTOR.redact_all) == "so\n[key]"
    calls = [
        {"delta": {"type": "input_json_delta", "partial_json": part}, "index": index, "type": "content_block_delta"}
        for index, part in ((1, "ada@exa"), (2, "x"), (1, "mple.org"))
    ]
    stream = b"".join(b"data: " + json.dumps(call).encode() + b"\n\n" for call in calls)
    assert answer_text(stream, REDACTOR.redact_all) == "[email]\nx"


def test_what_is_split_between_two_pieces_of_a_stream_is_found() -> None:
    pieces = [{"choices": [{"delta": {"content": part}}]} for part in ("I am ada@exa", "mple.org.")]
    stream = b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces) + b"data: [DONE]\n\n"
    assert answer_text(stream, REDACTOR.redact_all) == "I am [email]."
    anthropic = b'event: content_block_delta\ndata: {"delta": {"type": "text_delta", "text": "Hi"}}\n\n'
    assert answer_text(anthropic, REDACTOR.redact_all) == "Hi"
    call = b'data: {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}\n\n'
    assert answer_text(call, REDACTOR.redact_all) == "{}"
    assert json.loads(answer_text(b'{"choices": [{"text": "a@b.cd"}], "id": 1}', REDACTOR.redact_all)) == {
        "choices": [{"text": "[email]"}]
    }


def test_an_operator_adds_forms_and_a_wrong_one_is_named() -> None:
    own = read_patterns("# ours\n\nstaff_id = \\bEMP-\\d{6}\\b\n")
    assert Redactor(own).redact("EMP-123456 and a@b.cd") == "[staff_id] and [email]"
    for wrong in ("Name = x", "name", "name = (", "name = x*"):
        with pytest.raises(ConfigurationError, match="line 1 of the content patterns"):
            read_patterns(wrong)


SECRETS_OF_ALL_KINDS = (
    "sk-abcdefghijklmnop",
    "xoxb-abcdefghijklmnop",
    "github_pat_abcdefghijklmnop",
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "a" * 35,
    "bEaReR  abcdefghijklmnop",
    "eyJhbGciOiJI.eyJzdWIi",
    "https://u:p@h",
    "-----BEGIN PRIVATE KEY-----",
    "a@b.c",
)


@given(st.text(max_size=20), st.sampled_from(SECRETS_OF_ALL_KINDS), st.text(max_size=20))
def test_where_no_secret_is_expected_none_is_found(before: str, secret: str, behind: str) -> None:
    assert may_hold_secrets(secret)
    for text in (before + secret + behind, before + behind):
        found = [one for one in DEFAULT_PATTERNS if one.name in SECRETS | {EMAIL} and one.form.search(text)]
        held = [one for one in found if any(one.holds(match[0]) for match in one.form.finditer(text))]
        assert may_hold_secrets(text) or not held


@given(
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.sampled_from(["@", "-", "_", "eyJ", "bearer ", "Bearer\t", "+", "00", "AKIA", "://", ":", "sk-", "tk_"]),
            st.text("0123456789 ().-", min_size=1, max_size=22),
            st.text("ABCDEFGHabcdefgh0123456789_-", min_size=12, max_size=24),
            *[st.from_regex(pattern.form, fullmatch=True) for pattern in DEFAULT_PATTERNS[1:]],
        ),
        max_size=6,
    )
)
def test_a_text_that_is_not_searched_by_each_pattern_holds_nothing_that_one_would_find(parts: list[str]) -> None:
    text = "".join(parts)
    for pattern in DEFAULT_PATTERNS:
        assert pattern.may_match(text) or pattern.form.search(text) is None
    if REDACTOR.redact(text) == text:
        found = [pattern.form.search(text) for pattern in DEFAULT_PATTERNS]
        kept = [
            pattern.name
            for pattern, match in zip(DEFAULT_PATTERNS, found, strict=True)
            if match is not None and pattern.replace is None and pattern.holds(match[0])
        ]
        assert kept == []


@given(
    st.lists(
        st.one_of(
            st.text("0123456789 ().+-", max_size=24),
            st.text("0123456789 ().+-\\nab\u0663", max_size=8),
            st.sampled_from(
                ["4111 1111 1111 1111", "+49 170 1234567", "(555) 123-4567", "0049301234567", "\\n+4930123456"]
            ),
        ),
        max_size=6,
    )
)
def test_numbers_are_found_in_their_runs_as_in_the_whole_text(parts: list[str]) -> None:
    text = "".join(parts)
    assert _without_numbers(text) == _without(_NUMBERS, text)
