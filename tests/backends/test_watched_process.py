"""For how long a process counts as hung: from the moment at which it was asked and did not answer."""

import asyncio

import pytest

from backends.processes.process_watch import Answer, WatchedProcess


async def test_the_time_before_it_was_found_hung_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    answers: list[tuple[Answer, float]] = [
        (("up", ""), 0.0),
        (("hung", "no answer"), 3.0),
        (("hung", "no answer"), 3.0),
        (("up", ""), 0.0),
        (("hung", "it is stopped"), 0.0),
    ]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def ask() -> Answer:
        nonlocal now
        answer, took = answers.pop(0)
        now += took
        return answer

    watched, found = WatchedProcess("engine", ask, lambda one: None), []
    while answers:
        now += 2.0
        await watched.look()
        found.append(watched.hung_seconds)
    assert found == [0.0, 3.0, 8.0, 0.0, 0.0], "asked for 3 s; then 2 s of pause and 3 s; and found stopped at once"
