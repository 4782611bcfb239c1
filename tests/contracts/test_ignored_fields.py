"""The list of request fields that change no answer: what is on it, and that the page of parameters repeats it."""

import re
from pathlib import Path

import msgspec
import pytest

from contracts.api.ignored_fields import IGNORED_FIELDS, is_ignored, without_ignored

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parameters.md"


def test_the_page_of_parameters_has_the_same_list() -> None:
    section = PAGE.read_text().partition("## Fields that are ignored")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| (\w+) \| `(\w+)` \|", section, re.MULTILINE))
    assert listed == {(api, name) for api, fields in IGNORED_FIELDS.items() for name in fields}


@pytest.mark.parametrize("value", [b"{}", b'{"edits":[]}', b'{"edits":null}'])
def test_context_management_without_edits(value: bytes) -> None:
    assert is_ignored("messages", "context_management", value)
    assert not is_ignored("responses", "context_management", value)


@pytest.mark.parametrize("value", [b"3", b"[]", b'{"edits":{"type":"x"}}', b'{"edits":[3]}', b'{"a":1}', b"[" * 5000])
def test_context_management_that_is_none(value: bytes) -> None:
    assert not is_ignored("messages", "context_management", value)


def test_the_rest_of_a_body_stays_as_it_is() -> None:
    body = b'{"a":{"b" : 1.50},"client_metadata":{"x":1},"c":"\\u00e9"}'
    assert without_ignored("responses", body) == b'{"a":{"b" : 1.50},"c":"\\u00e9"}'
    with pytest.raises(msgspec.DecodeError):
        without_ignored("responses", b"[1]")
