"""Rounds of the failover benchmark are kept, so that an interrupted run goes on where it was."""

from pathlib import Path

from bench.high_availability import Rounds


def test_a_round_that_is_done_is_not_done_again(tmp_path: Path):
    file, runs = tmp_path / "rounds", []

    def run() -> dict[str, float]:
        runs.append(1)
        return {"exceeded": float(len(runs))}

    first = Rounds(file)
    assert [first.done(name, run) for name in ("a", "b", "a")] == [
        {"exceeded": 1.0},
        {"exceeded": 2.0},
        {"exceeded": 1.0},
    ]
    later = Rounds(file)
    assert later.done("b", run) == {"exceeded": 2.0} and len(runs) == 2
    assert later.done("c", run) == {"exceeded": 3.0}


def test_without_a_file_every_run_begins_anew():
    assert Rounds(None).done("a", lambda: {"gap": 1.0}) == Rounds(None).done("a", lambda: {"gap": 1.0})
