"""The demonstration: the beginning of a real trace, pages to look at, no browser if there is no screen."""

import io
import webbrowser
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from rich.console import Console

from tollkeeper.demonstration import TRACE, Demonstration, has_display, open_page, watchful
from tollkeeper.slack_receiver import SlackReceiver

ADDRESSES = {"gateway": "http://g", "control": "http://c", "dashboard": "http://d"}


def demo(tmp_path: Path, **fields: object) -> tuple[Demonstration, io.StringIO]:
    said = io.StringIO()
    return Demonstration(tmp_path, Console(file=said, width=200), **fields), said  # type: ignore[arg-type]  # by name


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", urls.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return urls


def test_the_traffic_is_the_trace_s_beginning_as_long_as_asked(tmp_path: Path) -> None:
    traffic = demo(tmp_path, seconds=60.0)[0]._traffic()
    assert traffic.format == "azure" and TRACE.name == traffic.name
    assert len(traffic.requests) > 100 and traffic.requests[-1].at_seconds < 60.0
    slower = demo(tmp_path, seconds=60.0, speed=0.1)[0]._traffic()
    assert 0 < len(slower.requests) < len(traffic.requests) and slower.requests[-1].at_seconds < 6.0
    assert len(demo(tmp_path, seconds=1.0, speed=0.01)[0]._traffic().requests) == 1


def test_pages_are_printed_and_nothing_is_opened_without_a_screen(tmp_path: Path, opened: list[str]) -> None:
    made, said = demo(tmp_path)
    made._show_pages(ADDRESSES)
    assert "http://d" in said.getvalue() and "http://c/docs" in said.getvalue()
    assert opened == []


def test_the_dashboard_is_opened_where_there_is_a_screen_unless_told_not_to(
    tmp_path: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    demo(tmp_path, opens_browser=False)[0]._show_pages(ADDRESSES)
    demo(tmp_path)[0]._show_pages({"gateway": "http://g", "control": "http://c"})  # --no-dashboard
    assert opened == []
    demo(tmp_path)[0]._show_pages(ADDRESSES)
    assert opened == ["http://d"]


def test_a_machine_without_a_browser_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str) -> bool:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "open", fail)
    open_page("http://d")


@pytest.mark.parametrize(
    ("environment", "found"),
    [({}, False), ({"DISPLAY": ""}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True)],
)
def test_a_screen_is_told_from_the_environment(environment: dict[str, str], found: bool) -> None:
    assert has_display(environment) is found


def posted(url: str, body: bytes) -> int:
    try:
        with urlopen(Request(url, data=body, method="POST"), timeout=10) as reply:
            return int(reply.status)
    except HTTPError as error:
        return error.code


def test_the_stand_in_for_slack_takes_messages_and_nothing_else() -> None:
    heard: list[str] = []
    with SlackReceiver(heard.append) as receiver:
        assert posted(receiver.url, b'{"text": "Alert: one"}') == 200
        for body in (b"", b"{", b"[]", b'{"text": 1}', b'{"attachments": []}'):
            assert posted(receiver.url, body) == 400
    assert receiver.messages == heard == ["Alert: one"]


def test_a_demonstration_looks_at_its_rules_often_unless_the_operator_says_how_often() -> None:
    made = watchful({"HOME": "/root", "TOLLKEEPER_ALERTS_EVALUATE_SECONDS": "60"})
    assert made["TOLLKEEPER_ALERTS_EVALUATE_SECONDS"] == "60" and made["HOME"] == "/root"
    assert made["TOLLKEEPER_ALERTS_INWARD"] == "127.0.0.0/8"
