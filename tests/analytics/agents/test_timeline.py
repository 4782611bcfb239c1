"""Loops, and the edits that break a prompt's prefix, as a session's turns tell them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.agents.timeline import CACHE_SECONDS, Turn, first_difference, judged

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
TURN = Turn("r", BEGAN, 1, "chat", "claude", "anthropic", "", "ok", 200, "", "stop", "", 1000, 0, 900, 10, None)
PARTS = (1, 2, 3, 4)


def later(turn: Turn, seconds: float = 10, **fields: object) -> Turn:
    return replace(turn, began=turn.began + timedelta(seconds=seconds), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("repeats", "is_loop"), [(2, False), (3, True), (4, True)])
def test_the_same_call_three_times_in_a_row_is_a_loop(repeats: int, is_loop: bool) -> None:
    turns = judged(later(TURN, number, tools=("Bash",), tool_marks=(7,)) for number in range(repeats))
    assert [turn.repeats for turn in turns] == list(range(1, repeats + 1))
    assert turns[-1].is_loop is is_loop


def test_another_call_in_between_ends_a_loop_and_a_tool_call_of_the_gateway_does_not() -> None:
    asked = [later(TURN, number, tool_marks=(mark,)) for number, mark in enumerate((7, 7, 8, 7))]
    assert [turn.repeats for turn in judged(asked)] == [1, 2, 1, 1]
    made = later(TURN, 1, operation="execute_tool", tool_marks=(9,))
    asked = [later(TURN, 0, tool_marks=(7,)), made, later(TURN, 2, tool_marks=(7,))]
    assert [turn.repeats for turn in judged(asked)] == [1, 0, 2]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ((1, 2, 3, 4, 5), ""),
        (PARTS, ""),
        ((9, 2, 3, 4, 5), "the tools changed"),
        ((1, 9, 3, 4, 5), "the instructions changed"),
        ((1, 2, 9, 4, 5), "message 1 changed"),
        ((1, 2, 3, 9, 5), "message 2 changed"),
        ((1, 2, 3), "message 2 was removed"),
        ((), ""),
    ],
)
def test_the_first_part_that_differs_is_named(after: tuple[int, ...], said: str) -> None:
    assert first_difference(PARTS, after) == said


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_what_is_only_added_at_the_end_breaks_nothing(parts: list[int], more: list[int]) -> None:
    assert first_difference(parts, parts + more) == ""


@pytest.mark.parametrize(("cached", "lost"), [(899, 1), (900, 0), (901, 0)])
def test_a_prefix_is_broken_if_less_was_cached_than_the_turn_before_left(cached: int, lost: int) -> None:
    turns = judged([replace(TURN, prompt_marks=PARTS), later(TURN, cached_tokens=cached, prompt_marks=(1, 9, 3, 4))])
    assert turns[1].lost_tokens == lost
    assert turns[1].broken_by == ("the instructions changed" if lost else "")


@pytest.mark.parametrize(
    ("seconds", "fields", "said"),
    [
        (CACHE_SECONDS, {}, "the provider had evicted it"),
        (CACHE_SECONDS + 1, {}, "5 minutes without a turn"),
        (1, {"provider": "bedrock"}, "another provider answered (bedrock)"),
        (1, {"prompt_marks": ()}, "unknown: the prompt's parts were not recorded"),
    ],
)
def test_a_prefix_that_no_edit_broke_has_another_reason(seconds: float, fields: dict[str, object], said: str) -> None:
    before = replace(TURN, prompt_marks=PARTS)
    [_, turn] = judged([before, later(before, seconds, cached_tokens=0, written_tokens=0, **fields)])
    assert (turn.broken_by, turn.lost_tokens) == (said, 900)


def test_subagents_and_models_have_prompts_of_their_own() -> None:
    before = replace(TURN, prompt_marks=PARTS)
    others = [later(before, 1, agent="explore", prompt_marks=(9,)), later(before, 2, model="haiku", prompt_marks=(9,))]
    again = later(before, 3, cached_tokens=900, prompt_marks=(*PARTS, 5))
    assert [turn.broken_by for turn in judged([before, *others, again])] == [""] * 4
