"""What measures or pictures the dashboard's pages notices one that failed, wholly or in part, and one that waits."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import screenshots
from bench.dashboard import _sound, _waits
from bench.page_failures import DRAWN_TITLES, failure_of
from bench.screenshots import fault_of
from bench.streamlit_client import Drawn
from dashboard import frame, states
from dashboard.visit import REFRESH_SECONDS

NUMBERS = "### Speed\nRequests: 1,204\nNobody did."


@pytest.mark.parametrize(
    "line",
    [
        "#### This page failed",
        "#### The telemetry store does not answer",
        "#### Not found",
        "#### No tenant ‘x’ here",
        ":material/error: The store does not answer\\.",
        ":material/lock: Not for you: prices\\.",
        "EXCEPTION division by zero",
    ],
)
def test_a_page_or_a_part_of_one_that_failed_is_not_taken_for_drawn(line):
    words = f"#### Nothing in this range\n{NUMBERS}\n{line}"
    assert failure_of(words) == line
    with pytest.raises(RuntimeError, match=re.escape(repr(line))):
        _sound(Drawn(0.1, 0.1, 3, 10, words))


@pytest.mark.parametrize("words", ["", NUMBERS, f"#### Nothing in this range\n{NUMBERS}"])
def test_a_page_that_was_drawn_is_sound(words):
    drawn = Drawn(0.1, 0.1, 3, 10, words)
    assert failure_of(words) == "" and _sound(drawn) is drawn


def test_titles_that_are_let_through_are_those_of_states():
    titles = set(re.findall(r'"#### ([^"]+)"', Path(states.__file__).read_text()))
    assert titles > DRAWN_TITLES and "This page failed" in titles


@pytest.mark.parametrize(("refresh_seconds", "waits"), [(None, False), (frame._SLOW_POLL_SECONDS, True), (2.0, False)])
def test_a_page_waits_that_looks_again_sooner_than_any_refreshes(refresh_seconds, waits):
    assert _waits(Drawn(0.1, 0.1, 3, 10, NUMBERS, refresh_seconds)) == waits
    assert min(REFRESH_SECONDS.values()) >= 2.0


@pytest.mark.parametrize(
    ("tracebacks", "words", "is_settled", "fault"),
    [
        (0, "", True, ""),
        (0, "", False, f"still drawing after {screenshots._SETTLE_SECONDS:g} s"),
        (0, "#### This page failed", True, "it says '#### This page failed'"),
        (0, ":material/error: No answer.", False, "it says ':material/error: No answer.'"),
        (1, "", True, "a traceback"),
    ],
)
def test_a_picture_of_a_failed_page_is_told(tracebacks, words, is_settled, fault):
    page = SimpleNamespace(locator=lambda _: SimpleNamespace(count=lambda: tracebacks), evaluate=lambda _: words)
    assert fault_of(page, is_settled=is_settled) == fault
