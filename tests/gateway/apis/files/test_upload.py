"""An upload's form: its file comes out byte for byte, and what is wrong with it is said by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from contracts.objects.files import PIECE_BYTES
from gateway.apis.files.upload import DEFAULT_EXPIRY_SECONDS, read_upload

TYPE = "multipart/form-data; boundary=BOUNDARY"


def part(name: str, content: bytes, filename: str | None = None) -> bytes:
    named = f'; filename="{filename}"' if filename is not None else ""
    return f'--BOUNDARY\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--BOUNDARY--\r\n"


PURPOSE = part("purpose", b"batch")
FILE = part("file", b"{}\n", "in.jsonl")


@given(st.binary(min_size=1, max_size=200).filter(lambda content: b"--BOUNDARY" not in content))
def test_a_file_comes_out_as_it_was_sent(content):
    upload = read_upload(TYPE, form(PURPOSE, part("file", content, "in.jsonl")))
    assert b"".join(upload.pieces) == content and upload.size_bytes == len(content)


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 7])
def test_a_file_is_cut_into_pieces_of_one_size_the_last_one_shorter(size):
    content = bytes(range(251)) * (size // 251 + 1)
    upload = read_upload(TYPE, form(part("file", content[:size], "in.jsonl"), PURPOSE))
    assert b"".join(upload.pieces) == content[:size]
    assert {len(piece) for piece in upload.pieces[:-1]} <= {PIECE_BYTES} and 0 < len(upload.pieces[-1]) <= PIECE_BYTES


def test_a_name_is_read_as_sdks_write_it():
    upload = read_upload(TYPE, form(PURPOSE, part("file", b"x", "é%22 two.jsonl")))
    assert upload.filename == 'é" two.jsonl' and upload.expires_after_seconds == DEFAULT_EXPIRY_SECONDS


@pytest.mark.parametrize(("seconds", "fits"), [(3599, False), (3600, True), (2592000, True), (2592001, False)])
def test_an_expiry_is_held_to_an_hour_and_thirty_days(seconds, fits):
    anchor = part("expires_after[anchor]", b"created_at")
    body = form(PURPOSE, FILE, anchor, part("expires_after[seconds]", str(seconds).encode()))
    if fits:
        assert read_upload(TYPE, body).expires_after_seconds == seconds
    else:
        with pytest.raises(InvalidRequest, match=f"expires_after.seconds is {seconds}; it must be within 3600 to"):
            read_upload(TYPE, body)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (form(FILE), "purpose", "purpose is required"),
        (form(PURPOSE), "file", "file is required"),
        (form(part("purpose", b"user_data"), FILE), "purpose", "'user_data'; only 'batch' is supported"),
        (form(part("purpose", b"\xff"), FILE), "purpose", "not UTF-8"),
        (form(PURPOSE, part("file", b"", "in.jsonl")), "file", "the file is empty"),
        (form(PURPOSE, part("file", b"{}")), "file", "without a file name"),
        (form(PURPOSE, part("file", b"{}", "")), "file", "1 to 255 printable"),
        (form(PURPOSE, part("file", b"{}", "x" * 256)), "file", "1 to 255 printable"),
        (form(PURPOSE, part("file", b"{}", "a\x00b")), "file", "1 to 255 printable"),
        (form(PURPOSE, FILE, FILE), "file", "more than once"),
        (form(PURPOSE, PURPOSE, FILE), "purpose", "more than once"),
        (form(PURPOSE, FILE, part("colour", b"red")), "colour", "a field 'colour'"),
        (form(part("purpose", b"x" * 1025), FILE), "purpose", "more than 1024 bytes"),
        (form(PURPOSE, FILE, part("expires_after[anchor]", b"created_at")), "expires_after", "anchor and seconds"),
        (
            form(PURPOSE, FILE, part("expires_after[anchor]", b"now"), part("expires_after[seconds]", b"3600")),
            "expires_after",
            "it is 'created_at'",
        ),
    ],
)
def test_what_is_wrong_with_a_form_is_said_by_name(body, param, words):
    with pytest.raises(InvalidRequest) as refusal:
        read_upload(TYPE, body)
    assert refusal.value.param == param and words in refusal.value.message


@pytest.mark.parametrize("body", [b"", b"no form", form(PURPOSE, FILE)[:-4], b"--OTHER\r\n\r\n", b"--BOUNDARYx\r\n"])
def test_a_form_that_cannot_be_read_is_malformed(body):
    with pytest.raises(MalformedBody, match="multipart/form-data"):
        read_upload(TYPE, body)


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=BOUNDARY"])
def test_another_content_type_is_refused(kind):
    with pytest.raises(UnsupportedMediaType, match="send multipart/form-data with a boundary"):
        read_upload(kind, form(PURPOSE, FILE))


@given(st.binary(max_size=300))
def test_no_body_breaks_the_reading(noise):
    for body in (noise, PURPOSE + noise, form(PURPOSE, FILE)[: len(noise)] + noise):
        try:
            read_upload(TYPE, body)
        except (InvalidRequest, MalformedBody):
            pass
