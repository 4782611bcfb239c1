"""The agents page as a viewer meets it: sessions and their groups, loops, one session's turns, and nobody else's."""

from collections.abc import Callable
from typing import Any

import pytest

from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.records import RequestRecord
from tests.dashboard.test_speed_pages import Fill, fill, metrics, opened, request, words

__all__ = ["fill"]
ADDRESS = {"session": "s1", "of_key": "key_1", "of_tenant": "acme"}


def turn(minute: float, team: str = "red", **fields: object) -> RequestRecord:
    who = Identity("acme", team, "", "key_1", "ada", {"repo": "acme/shop", "branch": "main"})
    usage = Usage(input_text=100, cache_read_text=900, output_text=10)
    loop: dict[str, object] = {"tools": ["Bash"], "tool_marks": [7], "tool_calls": 1, "prompt_marks": [1, 2, 3]}
    values: dict[str, object] = {"who": who, "conversation_id": "s1", "usage": usage, **loop, **fields}
    return request(minute, team, **values)


@pytest.fixture
def session(fill: Fill) -> Callable[..., None]:
    """A session of four turns: three equal calls, and an edit of the instructions before the last."""
    fill(
        [
            turn(1, usage=Usage(input_text=0, cache_write_5m=1000, output_text=10)),
            turn(2),
            turn(3),
            turn(4, tool_marks=[8], prompt_marks=[1, 9, 3], usage=Usage(input_text=1000, output_text=10)),
            request(5),
        ]
    )
    return fill


def frame(app: Any, column: str) -> Any:
    return next(each.value for each in app.dataframe if column in each.value)


def test_sessions_loops_and_costs_by_repository_are_shown(session: Any) -> None:
    app = opened("agents")
    found = metrics(app)
    assert (found["Sessions"], found["Loops"], found["Prompt cache"]) == ("1", "1", "45.0 %")
    assert frame(app, "Repository")["Repository"].tolist() == ["acme/shop"]
    assert frame(app, "Repeated calls")["Repeated calls"].tolist() == [3]
    assert frame(app, "Branch")["Turns"].tolist() == [4]


@pytest.mark.parametrize(
    ("by", "column", "names"),
    [("developer", "Developer", ["ada"]), ("tool", "Tools", ["Bash"]), ("agent", "Subagent", ["not stated"])],
)
def test_costs_are_shown_by_what_is_chosen(session: Any, by: str, column: str, names: list[str]) -> None:
    assert frame(opened("agents", {"cost_by": by}), column)[column].tolist() == names


def test_a_session_opens_to_its_turns_and_says_what_broke_its_prefix(session: Any) -> None:
    app = opened("agents", ADDRESS)
    found = metrics(app)
    assert (found["Turns"], found["Prompt cache"], found["Prefix broken"]) == ("4", "45.0 %", "2")
    timeline = frame(app, "Prefix broken by")
    assert timeline["Loop"].tolist() == ["", "", "3 times in a row", ""]
    assert timeline["Prefix broken by"].tolist()[-1] == "the instructions changed"
    assert frame(app, "Tokens paid as new")["Tokens paid as new"].tolist() == [100, 900]


def test_a_team_sees_no_session_of_another(session: Any) -> None:
    assert "No agent sessions in this range" in words(opened("agents", access=("acme", "blue")))
    app = opened("agents", ADDRESS, access=("acme", "blue"))
    assert not app.dataframe and not app.metric


def test_without_a_session_the_page_says_how_to_name_one(fill: Fill) -> None:
    fill([request(1)])
    assert "x-tollkeeper-conversation-id" in words(opened("agents"))
