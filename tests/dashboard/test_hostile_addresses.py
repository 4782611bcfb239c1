"""What stands in an address is shown as text: it makes no link, no image and no markup."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from contracts.errors import InvalidRequest, NotFound, PermissionDenied
from dashboard import pages
from dashboard.address import TRAVELLING
from dashboard.page import Page
from dashboard.pages import PAGES
from dashboard.states import escaped, is_same_name
from tests.dashboard.test_page import page

HOSTILE = (
    "http://evil.example/",
    "https://evil.example/a",
    "www.evil.example",
    "WWW.evil.example",
    "ada@evil.example",
    "mailto:ada@evil.example",
    "<http://evil.example>",
    "[click](http://evil.example)",
    "![](http://evil.example/x.png)",
    "http&#58;//evil.example",
    "&#104;ttp://evil.example",
    "<img src=http://evil.example>",
    "x\n\n# Sign in again\n===",
    ":red[x] :material/lock: $x$ **x**",
)
# How remark-gfm finds addresses in text, after backslashes and entities are resolved.
_LINKS = (re.compile(r"(https?://|www(?=\.))([-.\w]+)", re.I), re.compile(r"[-.\w+]+@[-\w]+(\.[-\w]+)+"))
_ENTITY = re.compile(r"(?<!\\)&")
_MARKUP = re.compile(r"(?<!\\)(?:\\\\)*[\[\]<>*_`$#!~|{}=:()]")


def assert_is_text(written: str) -> None:
    """Assert that Markdown reads nothing into it."""
    assert _MARKUP.search(written) is None and _ENTITY.search(written) is None and "\n" not in written, written
    shown = re.sub(r"\\(.)", r"\1", written)
    assert not any(link.search(shown) for link in _LINKS), written


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_is_no_markup(text: str) -> None:
    assert_is_text(escaped(text))


@given(st.lists(st.sampled_from([*HOSTILE, *"\\:/@.&#;w \n<>[]()!`=", "http", "www", "ftp"])).map("".join))
def test_no_combination_is_markup(text: str) -> None:
    assert_is_text(escaped(text))


@pytest.mark.parametrize("name", ["ada@acme.example", "http://x", "plain"])
def test_a_name_copied_from_the_page_is_taken_for_itself(name: str) -> None:
    assert is_same_name(re.sub(r"\\(.)", r"\1", escaped(name)), name) and not is_same_name("other", name)


@pytest.fixture
def page_store(empty_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in empty_store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)


EVERYTHING = (
    "http://evil.example/x www.evil.example ada@evil.example [c](http://evil.example) ![i](http://evil.example)"
)
OWN = (
    "request",
    "p",
    "q",
    "outcome",
    "sort",
    "tag",
    "tag_name",
    "user",
    "provider",
    "level",
    "budget",
    "alert",
    "rule",
    "channel",
    "silence",
    "view",
)


@pytest.mark.usefixtures("page_store")
@pytest.mark.parametrize("parameter", [*TRAVELLING, "by"])
def test_no_filter_of_an_address_becomes_markup(parameter: str) -> None:
    assert_no_link(page(**{parameter: EVERYTHING}))


@pytest.mark.usefixtures("page_store")
@pytest.mark.parametrize("opened", PAGES, ids=lambda opened: opened.path)
def test_no_parameter_of_a_page_becomes_markup(opened: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGES", (opened, *(other for other in PAGES if other is not opened)))
    for parameters in ({name: EVERYTHING for name in OWN}, *({name: EVERYTHING} for name in ("request", "p", "level"))):
        assert_no_link(page(**parameters))


def assert_no_link(app: AppTest) -> None:
    assert not app.exception
    elements = (*app.title, *app.markdown, *app.caption, *app.error, *app.warning, *app.info)
    said = [str(one.value) for one in elements] + [one.label for one in app.button]
    assert all(_is_unlinked(words) for words in said), said


def draw_failure(kind: str, message: str) -> None:
    """What Streamlit runs."""
    from contracts import errors
    from dashboard import states

    error = getattr(errors, kind)(message)
    states.show_failure(error)
    states.show_failure_in_panel(error)


@pytest.mark.parametrize("kind", [kind.__name__ for kind in (NotFound, InvalidRequest, PermissionDenied)])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_failure_that_quotes_an_address_is_text(kind: str, text: str) -> None:
    app = AppTest.from_function(draw_failure, kwargs={"kind": kind, "message": f"no request {text} here"}).run()
    assert not app.exception
    assert all(_is_unlinked(str(one.value)) for one in (*app.markdown, *app.caption))


def _is_unlinked(drawn: str) -> bool:
    shown = re.sub(r"\\(.)", r"\1", drawn)
    links = (found.group() for link in _LINKS for found in link.finditer(shown))
    return not any("evil" in found for found in links)
